"""What is planned, decided and committed: the effects of the coordinator's actions, and what they rest on."""
