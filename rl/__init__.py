"""FedAA's agents: reinforcement learning that weighs a federation's clients.

DDPG and TD3 are RLlib algorithms of our own, PPO is RLlib's. A run does not let RLlib drive: the
server asks an agent for weights, runs a round with them, and tells the agent what came of it.

The algorithms, which know nothing of federations:
    options.py          every option of DDPG and TD3
    algorithm.py        DDPGConfig, TD3Config and their loop, for ``train()`` and Tune
    rl_module.py        actor, critics, targets, exploration; networks.py has the networks
    learner.py          losses and updates (FedAA's Equations 1–3)
    replay.py           the replay buffer, with a seed
    private.py          what is used of RLlib that RLlib does not promise
FedAA:
    weighers.py         the agents as parts that a config names; loads RLlib only when one starts
    off_policy.py       DDPG and TD3 driven by the server
    on_policy.py        PPO driven by the server
    learning.py         what both need of a learner: building it, its state, saved policies
    randomness.py       RLlib leaves the global random generators as a run had them
Pre-training (``fedorch agent pretrain``):
    env.py              a simulated federation as a Gymnasium environment
    pretrain.py         training in it
"""
