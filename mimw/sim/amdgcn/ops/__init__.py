"""Families of AMDGCN instructions: each module registers its decoders on import."""
