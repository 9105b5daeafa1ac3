"""The parts of the planner: names, functions, columns of results, and each kind of plan."""
