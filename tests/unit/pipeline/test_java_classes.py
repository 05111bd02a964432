"""What Spark's Java gets from us: used where it is, not missed where it is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from vedette.pipeline.java_classes import CHECKPOINT_CLASS, JavaClasses

CLASS = "spark.sql.streaming.checkpointFileManagerClass"
OPTIONS = "spark.driver.extraJavaOptions"


@pytest.fixture
def classes(tmp_path: Path) -> JavaClasses:
    return JavaClasses(tmp_path)


def test_without_them_nothing_is_said_to_spark(classes: JavaClasses):
    assert not classes.are_made
    assert classes.settings("local[2,4]", "-X") == {OPTIONS: "-X"}
    classes.archive.touch()  # of no use: it was made with the class
    assert classes.settings("local[2,4]", "-X") == {OPTIONS: "-X"}


def test_the_class_is_used_without_the_archive(classes: JavaClasses):
    classes.jar.touch()
    found = classes.settings("local[2,4]", "-X")
    assert found == {OPTIONS: "-X", CLASS: CHECKPOINT_CLASS, "spark.driver.extraClassPath": str(classes.jar)}


def test_an_archive_that_does_not_fit_is_no_error(classes: JavaClasses):
    classes.jar.touch()
    classes.archive.touch()
    assert classes.are_made
    options = classes.settings("local[2,4]", "-X")[OPTIONS]
    assert f"-XX:SharedArchiveFile={classes.archive}" in options
    assert "-Xshare:auto" in options


def test_executors_on_other_machines_are_not_asked_for_a_class_that_they_lack(classes: JavaClasses):
    classes.jar.touch()
    assert CLASS not in classes.settings("spark://there:7077", "-X")
