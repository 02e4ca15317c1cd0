"""Results and recorded answers of AgentV (TypeScript)."""
