"""A figure of the console and its budget."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """One number and the budget it has."""

    title: str
    value: float
    unit: str
    budget: float
    most: bool = True
    """Whether the budget is the largest good value; otherwise it is the smallest."""

    @property
    def holds(self) -> bool:
        return self.value <= self.budget if self.most else self.value >= self.budget
