"""Engines that people already run, on files and frames: what their workers count adds up."""

from fastbayes.engines import dask as dask
from fastbayes.engines import pool as pool
from fastbayes.engines import spark as spark
from fastbayes.engines.shares import Paths as Paths
from fastbayes.engines.shares import map_reduce as map_reduce
from fastbayes.engines.shares import part as part

__all__ = ["Paths", "dask", "map_reduce", "part", "pool", "spark"]
