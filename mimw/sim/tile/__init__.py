"""The tile simulator. `run` executes a module; importing this package loads NumPy."""

from mimw.sim.errors import SimulationError
from mimw.sim.tile.descriptor import TensorDescriptor
from mimw.sim.tile.host import launch_on_host, run_on_host
from mimw.sim.tile.interpreter import SimResult, run

__all__ = ["SimResult", "SimulationError", "TensorDescriptor", "launch_on_host", "run", "run_on_host"]
