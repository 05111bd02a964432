"""The Spark pipeline: delivers changes of external collections to the gateways. The only package that imports
pyspark."""

__all__: list[str] = []
