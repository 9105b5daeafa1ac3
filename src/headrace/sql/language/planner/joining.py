"""Plans of SELECTs with JOIN."""

from headrace.sql.language.errors import SqlError
from headrace.sql.language.planner.planned import PlanRequest
from headrace.sql.language.planner.state_joining import plan_state_join
from headrace.sql.language.planner.stream_joining import plan_stream_join
from headrace.sql.plans import QueryPlan


def plan_join(request: PlanRequest) -> QueryPlan:
    streams = [relation for relation in request.relations if not relation.source.is_table]
    if len(streams) == len(request.relations):
        return plan_stream_join(request)
    if len(streams) > 1:
        raise SqlError(
            "A JOIN of streams and a JOIN with a table take two statements: CREATE STREAM joined AS"
            " SELECT ... of the streams; and then SELECT ... FROM joined JOIN the table."
        )
    return plan_state_join(request)
