"""The `mimw` command: `doctor`, `inspect`, `sim`, `demo`. Parses the command line; each subcommand lives in its own module."""

from __future__ import annotations

import argparse
import sys

from mimw import __version__
from mimw.diagnostics import CompilationError, InternalError


def main(argv: list[str] | None = None) -> int:
    """Run the command; the exit status: 0, 1 for a fault of the user's program, 2 for a wrong command line."""
    parser = _parser()
    given = list(sys.argv[1:] if argv is None else argv)
    at = given.index("--") if given[:1] == ["sim"] and "--" in given else len(given)
    options = parser.parse_args(given[:at])
    options.arguments = given[at + 1 :]  # of the program that `sim` runs
    try:
        return _dispatch(options)
    except CompilationError as error:
        print(error, file=sys.stderr)
        return 1
    except InternalError as error:
        print(error, file=sys.stderr)
        return 3
    except BrokenPipeError:
        return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="mimw", description="Compile, inspect and check GPU kernels written in mimw.")
    parser.add_argument("--version", action="version", version=f"mimw {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("doctor", help="what this machine has and can do")
    inspect = commands.add_parser("inspect", help="show a kernel at one stage of its compilation")
    inspect.add_argument("kernel", metavar="FILE:KERNEL", help="a Python file and the name of a kernel in it")
    inspect.add_argument(
        "--signature",
        default="",
        metavar="SPEC",
        help="types and constants by name or in order, separated by commas: 'x_ptr=*f32:16,n=i32,BLOCK=1024' "
        "(*dtype: pointer, :16: divisible by 16, =1 style values: constants)",
    )
    inspect.add_argument(
        "--target",
        default="sm_90a",
        help="sm_80, sm_86, sm_89, sm_90a, sm_100a, sm_120a, gfx942, gfx950 (default: sm_90a)",
    )
    inspect.add_argument("--stage", default="", choices=("tile", "layouts", "ptx", "amdgcn", "sass"))
    inspect.add_argument("--num-warps", type=int, default=4)
    inspect.add_argument("--num-stages", type=int, default=3)
    inspect.add_argument("--color", choices=("auto", "always", "never"), default="auto")
    about = "run a program's launches in the tile simulator, and check them"
    sim = commands.add_parser("sim", help=about, epilog="The program's own arguments follow --.")
    sim.add_argument(
        "program", metavar="FILE[:KERNEL]", help="a Python file that launches kernels on NumPy arrays; one of them"
    )
    sim.add_argument(
        "--check", action="store_true", help="every check, under 8 schedules unless --schedules says otherwise"
    )
    sim.add_argument("--schedules", type=_positive, metavar="N", help="run each launch under N schedules (default: 1)")
    sim.add_argument("--seed", type=int, metavar="S", help="run each launch under the schedule of this seed only")
    sim.add_argument("--json", metavar="OUT", help="write what was found as JSON (- for stdout)")
    sim.add_argument(
        "--timeline", metavar="OUT", help="write when who did what, by a simple model: .json (Perfetto) or .svg"
    )
    sim.add_argument(
        "--target",
        default="sm_90a",
        help="gfx942, gfx950: launches run as machine code for it, not in the tile simulator; "
        "others: the machine that the timeline is of (default: sm_90a)",
    )
    commands.add_parser("demo", help="a matrix product from Python source to PTX, checked in both simulators")
    return parser


def _dispatch(options: argparse.Namespace) -> int:
    # Loaded on demand: `doctor` must work where a part of mimw does not.
    if options.command == "doctor":
        from mimw.tools.doctor import doctor

        return doctor()
    if options.command == "inspect":
        from mimw.tools.inspect import inspect

        return inspect(
            options.kernel,
            options.signature,
            options.target,
            options.stage,
            num_warps=options.num_warps,
            num_stages=options.num_stages,
            color=options.color,
        )
    if options.command == "sim":
        return _sim(options)
    from mimw.tools.demo import demo

    return demo()


def _sim(options: argparse.Namespace) -> int:
    from mimw.target import get_target
    from mimw.tools.sim import Settings, sim

    try:
        target = get_target(options.target)
    except ValueError as error:
        raise CompilationError("inspect-target", str(error)) from None
    settings = Settings(options.program, options.arguments)
    settings.check, settings.schedules, settings.seed = options.check, options.schedules, options.seed
    settings.json, settings.timeline, settings.target = options.json, options.timeline, target.name
    return sim(settings)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is below 1")
    return number


if __name__ == "__main__":
    sys.exit(main())
