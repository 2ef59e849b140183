"""FedAA's agents: DDPG and TD3 as RLlib algorithms, PPO as RLlib ships it, and how a federated
server drives them.
"""
