"""driftline's Spark session with one trivial job."""

from driftline.spark import open_session

with open_session("local[2]") as spark:
    assert spark.range(1000).count() == 1000
