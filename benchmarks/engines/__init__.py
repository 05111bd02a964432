"""The contenders, each behind the verbs of `seam.Engine`."""
