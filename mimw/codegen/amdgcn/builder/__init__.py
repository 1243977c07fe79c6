"""`LaneBuilder` for AMDGCN: how values are held, and which instructions do each primitive. `builder.py` is the whole, the others its families."""
