"""What is used here of RLlib 2.60 that RLlib does not promise: look here first when Ray moves on.

Three hooks of the same kind are overridden where their subclass is, each with its reason:
``DDPGConfig._model_config_auto_includes``, ``DDPG._create_local_replay_buffer_if_necessary`` and
``DDPGTorchLearner._uncompiled_update``.
"""

from __future__ import annotations

from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.core.learner.learner import Learner
from ray.rllib.env.env_runner import EnvRunner


def refuse(config: AlgorithmConfig, sentence: str) -> None:
    """Raise ValueError(sentence) from ``validate``, or only warn if the user asked for that.

    RLlib's own configs do it by this method, which alone knows what the user asked for. If it went,
    a plain ValueError would do.
    """
    config._value_error(sentence)


def take_given_weights(learner: Learner) -> None:
    """Make the next ``set_state`` take the weights it is given.

    A learner counts its updates and ignores weights that have been updated less often than its own:
    right for actors that report late, wrong for going back to a checkpoint. If Ray named the
    counter otherwise, a learner that has learned since the checkpoint would keep its weights, and
    the tests of exact resumption would fail.
    """
    learner._weights_seq_no = 0


def start_over(env_runner: EnvRunner) -> None:
    """Make the next sample begin a new episode.

    An episode under way does not continue those of a restored buffer, and no public method drops
    it. If Ray named the flag otherwise, the first transition after a restore would be added to an
    episode that the buffer does not have, and restoring an Algorithm would fail.
    """
    env_runner._needs_initial_reset = True
