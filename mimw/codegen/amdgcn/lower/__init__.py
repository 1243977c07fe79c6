"""Lowerings of ops that AMDGCN does its own way."""
