"""The study kit: everything that a study imports (:mod:`pipeline.studies.kit`)."""

from pipeline.studies.kit import *  # noqa: F403
