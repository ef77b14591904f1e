"""Conformance checks for your own models, planners, policies and environments.

::

    from worldplan.testing import check_model

    def test_my_model_is_a_world_model():
        check_model(MyModel())

Each check exercises one contract after the other and returns their names; the first that is broken
raises an `AssertionError` that says which, what was expected and what was found.
"""

from worldplan.testing.envs import check_env
from worldplan.testing.models import check_model
from worldplan.testing.planners import check_planner
from worldplan.testing.policies import check_policy
from worldplan.testing.toys import DoubleIntegrator, Reach, random_actions, random_obs

__all__ = [
    "DoubleIntegrator",
    "Reach",
    "check_env",
    "check_model",
    "check_planner",
    "check_policy",
    "random_actions",
    "random_obs",
]
