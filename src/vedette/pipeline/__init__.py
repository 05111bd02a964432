"""Changes of external collections to the gateways that want them, on Spark: the only home of pyspark."""

__all__: list[str] = []
