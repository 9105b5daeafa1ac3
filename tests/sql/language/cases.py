"""A catalog, and SELECTs with their plans, for the tests of the planner and those with Spark."""

from dataclasses import dataclass

from headrace.sql.language.declaring import declared_source
from headrace.sql.language.parsing import parse
from headrace.sql.language.planning import plan
from headrace.sql.language.script import split
from headrace.sql.language.statements import CreateAs, CreateSource, InsertSelect, SelectStatement
from headrace.sql.plans import PlanKind, QueryPlan
from headrace.sql.sources import SqlSource

SOURCES = """
CREATE STREAM orders (
    id VARCHAR KEY, customer BIGINT, amount DOUBLE, qty INT, price DECIMAL(10, 2), paid BOOLEAN,
    tags ARRAY<VARCHAR>, numbers ARRAY<INT>, attrs MAP<VARCHAR, VARCHAR>, data BYTES,
    address STRUCT<street VARCHAR, geo STRUCT<lat DOUBLE, lon DOUBLE>>,
    items ARRAY<STRUCT<sku VARCHAR, n INT>>, day DATE, moment TIMESTAMP, `odd name` VARCHAR
) WITH (kafka_topic = 'orders', value_format = 'JSON');
CREATE STREAM payments (id VARCHAR KEY, order_id VARCHAR, amount DOUBLE)
    WITH (kafka_topic = 'payments', value_format = 'JSON');
CREATE STREAM shipments (id VARCHAR KEY, order_id VARCHAR, carrier VARCHAR)
    WITH (kafka_topic = 'shipments', value_format = 'JSON');
CREATE STREAM clicks (url VARCHAR, user_id INT, h BYTES HEADER('trace'))
    WITH (kafka_topic = 'clicks', value_format = 'JSON');
CREATE STREAM visits (page VARCHAR KEY, n BIGINT)
    WITH (kafka_topic = 'visits', value_format = 'JSON', window_type = 'SESSION');
CREATE TABLE customers (id BIGINT PRIMARY KEY, name VARCHAR, region INT)
    WITH (kafka_topic = 'customers', value_format = 'JSON');
CREATE TABLE regions (id INT PRIMARY KEY, name VARCHAR, head VARCHAR)
    WITH (kafka_topic = 'regions', value_format = 'JSON');
CREATE TABLE taxes (region INT PRIMARY KEY, rate DOUBLE)
    WITH (kafka_topic = 'taxes', value_format = 'JSON');
CREATE TABLE stock (warehouse INT PRIMARY KEY, sku VARCHAR PRIMARY KEY, n INT)
    WITH (kafka_topic = 'stock', value_format = 'JSON', key_format = 'JSON');
CREATE TABLE prices (shop INT PRIMARY KEY, sku VARCHAR PRIMARY KEY, price DOUBLE)
    WITH (kafka_topic = 'prices', value_format = 'JSON', key_format = 'JSON');
CREATE TABLE hourly (id VARCHAR PRIMARY KEY, n BIGINT)
    WITH (kafka_topic = 'hourly', value_format = 'JSON', window_type = 'TUMBLING',
          window_size = '1 HOUR');
"""


def catalog() -> dict[str, SqlSource]:
    found = {}
    for text in split(SOURCES):
        statement = parse(text)
        assert isinstance(statement, CreateSource)
        found[statement.name.casefold()] = declared_source(statement)
    return found


CATALOG = catalog()


def source(name: str) -> SqlSource | None:
    return CATALOG.get(name.casefold())


def planned(text: str) -> QueryPlan:
    statement = parse(text)
    match statement:
        case CreateAs():
            return plan(statement.select, source, into_table=statement.is_table)
        case InsertSelect():
            return plan(statement.select, source, into_table=False)
        case SelectStatement():
            return plan(statement.select, source, into_table=None)
    raise AssertionError(f"{statement} has no plan")


@dataclass(frozen=True)
class PlanCase:
    """A statement, and what is true of its plan."""

    text: str
    kind: PlanKind
    columns: str
    """Separated by blanks."""
    keys: str = ""
    sql: str = ""
    """The whole SQL, or parts of it between `...`; columns at its end may be left out."""


STATELESS = [
    PlanCase(
        "CREATE STREAM s AS SELECT id, amount FROM orders WHERE amount > 3 EMIT CHANGES",
        PlanKind.STATELESS,
        "id amount",
        "id",
        "SELECT `orders`.`id` AS `id`, `orders`.`amount` AS `amount`, `orders`.`__time` AS `__time`"
        " FROM `orders` WHERE `orders`.`amount` > 3",
    ),
    PlanCase("SELECT * FROM payments EMIT CHANGES", PlanKind.STATELESS, "id order_id amount", "id"),
    PlanCase(
        "SELECT * EXCEPT (order_id), ROWTIME FROM payments EMIT CHANGES",
        PlanKind.STATELESS,
        "id amount ROWTIME",
        "id",
    ),
    PlanCase(
        "SELECT p.*, 1 AS one FROM payments AS p EMIT CHANGES LIMIT 3",
        PlanKind.STATELESS,
        "id order_id amount one",
        "id",
    ),
    PlanCase("SELECT url FROM clicks EMIT CHANGES", PlanKind.STATELESS, "url"),
    PlanCase("SELECT * FROM clicks EMIT CHANGES", PlanKind.STATELESS, "url user_id h"),
    # Names as ksqlDB has them.
    PlanCase(
        "SELECT ID, Amount * 2, UCASE(customer), address->street, address->geo->lat, qty + 1"
        " FROM orders EMIT CHANGES",
        PlanKind.STATELESS,
        "id KSQL_COL_0 KSQL_COL_1 street lat KSQL_COL_2",
        "id",
        "...`orders`.`address`.`geo`.`lat` AS `lat`...",
    ),
    PlanCase(
        "SELECT id, address->geo->*, items[1]->sku FROM orders EMIT CHANGES",
        PlanKind.STATELESS,
        "id lat lon KSQL_COL_0",
        "id",
        "...element_at(`orders`.`items`, 1).sku AS `KSQL_COL_0`...",
    ),
    PlanCase(
        'CREATE STREAM s AS SELECT id AS "my id", `odd name` FROM orders',
        PlanKind.STATELESS,
        "my_id odd_name",
        "my_id",
    ),
    PlanCase(
        "CREATE STREAM s AS SELECT id, ROWTIME AS t, ROWPARTITION AS p, ROWOFFSET AS o FROM orders"
        " WHERE ROWTIME BETWEEN '2026-01-01' AND '2026-01-02T03:04:05.678+0100'",
        PlanKind.STATELESS,
        "id t p o",
        "id",
        "...WHERE `orders`.`ROWTIME` BETWEEN 1767225600000 AND 1767319445678",
    ),
    # The key
    PlanCase(
        "CREATE STREAM s AS SELECT customer, AS_VALUE(customer) AS copy, id FROM orders"
        " PARTITION BY customer",
        PlanKind.STATELESS,
        "customer copy id",
        "customer",
    ),
    PlanCase(
        "CREATE STREAM s AS SELECT qty, customer, id FROM orders PARTITION BY (customer, qty)",
        PlanKind.STATELESS,
        "qty customer id",
        "customer qty",
    ),
    PlanCase(
        "CREATE STREAM s AS SELECT UCASE(id) AS k, amount FROM orders PARTITION BY UCASE(id)",
        PlanKind.STATELESS,
        "k amount",
        "k",
    ),
    PlanCase(
        "CREATE STREAM s AS SELECT amount FROM orders PARTITION BY NULL",
        PlanKind.STATELESS,
        "amount",
    ),
    PlanCase(
        "INSERT INTO orders SELECT id, amount FROM payments",
        PlanKind.STATELESS,
        "id amount",
        "id",
    ),
    PlanCase(
        "CREATE STREAM s AS SELECT page, n, WINDOWSTART AS begin FROM visits",
        PlanKind.STATELESS,
        "page n begin",
        "page",
        "...`visits`.`WINDOWSTART` AS `WINDOWSTART`, `visits`.`WINDOWEND` AS `WINDOWEND`,"
        " `visits`.`__time` AS `__time`...",
    ),
    # Table functions
    PlanCase(
        "CREATE STREAM s AS SELECT id, EXPLODE(tags) AS tag FROM orders",
        PlanKind.STATELESS,
        "id tag",
        "id",
        "...__exploded AS `tag`...LATERAL VIEW explode(`orders`.`tags`) __exploded_rows AS"
        " __exploded",
    ),
    PlanCase(
        "CREATE STREAM s AS SELECT id, EXPLODE(tags) AS tag, UCASE(EXPLODE(tags)) AS upper,"
        " EXPLODE(numbers) * 2 AS n FROM orders WHERE qty > 1",
        PlanKind.STATELESS,
        "id tag upper n",
        "id",
        "...try_element_at(`orders`.`tags`, __exploded) AS `tag`...",
    ),
    PlanCase(
        "CREATE STREAM s AS SELECT id, CUBE_EXPLODE(ARRAY[qty, customer]) AS c FROM orders",
        PlanKind.STATELESS,
        "id c",
        "id",
    ),
    PlanCase(
        "CREATE STREAM s AS SELECT id, tag, UCASE(o.tag) AS t FROM orders"
        " LATERAL VIEW OUTER explode(tags) o AS tag",
        PlanKind.STATELESS,
        "id tag t",
        "id",
        "...LATERAL VIEW OUTER explode(`orders`.`tags`) `o` AS `tag`",
    ),
    PlanCase(
        "SELECT id, k, EXPLODE(ENTRIES(attrs, TRUE))->V AS v FROM orders"
        " LATERAL VIEW explode(attrs) entry AS k, x EMIT CHANGES",
        PlanKind.STATELESS,
        "id k v",
        "id",
    ),
    # Expressions
    PlanCase(
        "SELECT id, TRANSFORM(items, x => x->n + 1) AS a, FILTER(attrs, (k, v) => k = 'x') AS b,"
        " REDUCE(numbers, 0, (s, x) => s + x) AS c, transform(numbers, x -> x * 2) AS d"
        " FROM orders EMIT CHANGES",
        PlanKind.STATELESS,
        "id a b c d",
        "id",
        "...transform(`orders`.`items`, x -> x.n + 1) AS `a`..."
        "map_filter(`orders`.`attrs`, (k, v) -> k = 'x') AS `b`...",
    ),
    PlanCase(
        "SELECT id, tags[1], tags[-1], tags[qty], attrs['x'] FROM orders EMIT CHANGES",
        PlanKind.STATELESS,
        "id KSQL_COL_0 KSQL_COL_1 KSQL_COL_2 KSQL_COL_3",
        "id",
        "...element_at(`orders`.`tags`, nullif(`orders`.`qty`, 0))...",
    ),
    PlanCase(
        r"SELECT id, CASE WHEN id LIKE 'a\_%' THEN 'it''s' ELSE '\d' END AS c, id IN ('a', 'b') AS"
        " i, NOT paid AS n, amount IS DISTINCT FROM 1 AS d, CAST(qty AS VARCHAR) AS v,"
        " CAST(price AS DECIMAL(5, 1)) AS p, TIMESTAMP '2026-01-01' AS t, -qty AS m"
        " FROM orders EMIT CHANGES",
        PlanKind.STATELESS,
        "id c i n d v p t m",
        "id",
        r"...LIKE 'a\\_%' THEN 'it\'s' ELSE '\\d' END AS `c`...",
    ),
]
CHANGES = [
    PlanCase(
        "CREATE TABLE t AS SELECT id, name FROM customers WHERE region = 3",
        PlanKind.CHANGES,
        "id name",
        "id",
        "SELECT `customers`.`id` AS `id`, `customers`.`name` AS `name`,"
        " `customers`.`__deleted` OR NOT coalesce(`customers`.`region` = 3, FALSE) AS `__deleted`,"
        " `customers`.`__time` AS `__time` FROM `customers`",
    ),
    PlanCase(
        "CREATE TABLE t AS SELECT * FROM stock",
        PlanKind.CHANGES,
        "warehouse sku n",
        "warehouse sku",
    ),
    PlanCase("SELECT name FROM customers EMIT CHANGES", PlanKind.CHANGES, "name"),
    PlanCase(
        "SELECT * FROM hourly EMIT CHANGES", PlanKind.CHANGES, "id WINDOWSTART WINDOWEND n", "id"
    ),
    PlanCase(
        "CREATE TABLE t AS SELECT id, n + 1 AS m FROM hourly WHERE WINDOWSTART > '2026-01-01'",
        PlanKind.CHANGES,
        "id m",
        "id",
    ),
]
AGGREGATES = [
    PlanCase(
        "CREATE TABLE t AS SELECT customer, COUNT(*) AS n, SUM(amount) AS total FROM orders"
        " GROUP BY customer EMIT CHANGES",
        PlanKind.AGGREGATE,
        "customer n total",
        "customer",
        "SELECT `orders`.`customer` AS `customer`, count(*) AS `n`, sum(`orders`.`amount`) AS"
        " `total`, FALSE AS `__deleted`, max(`orders`.`__time`) AS `__time` FROM `orders`"
        " GROUP BY `orders`.`customer`",
    ),
    PlanCase(
        "CREATE TABLE t AS SELECT customer, COUNT(*) AS n FROM orders WINDOW TUMBLING"
        " (SIZE 1 HOUR, GRACE PERIOD 5 SECONDS) WHERE qty > 0 GROUP BY customer"
        " HAVING COUNT(*) > 3",
        PlanKind.AGGREGATE,
        "customer n",
        "customer",
        "...unix_millis(window(`orders`.`__time`, '3600000 milliseconds').start) AS `WINDOWSTART`,"
        " unix_millis(window(`orders`.`__time`, '3600000 milliseconds').end) AS `WINDOWEND`,"
        " NOT coalesce(count(*) > 3, FALSE) AS `__deleted`, max(`orders`.`__time`) AS `__time`"
        " FROM `orders` WHERE `orders`.`qty` > 0 GROUP BY `orders`.`customer`,"
        " window(`orders`.`__time`, '3600000 milliseconds')",
    ),
    PlanCase(
        "CREATE TABLE t AS SELECT id, WINDOWSTART AS begin, WINDOWEND, COUNT(*) AS n FROM orders"
        " WINDOW HOPPING (SIZE 30 SECONDS, ADVANCE BY 10 SECONDS, RETENTION 2 DAYS,"
        " GRACE PERIOD 1 MINUTE) GROUP BY id HAVING SUM(amount) > 1 EMIT FINAL",
        PlanKind.AGGREGATE,
        "id begin n",
        "id",
        "...FALSE AS `__deleted`...HAVING sum(`orders`.`amount`) > 1",
    ),
    PlanCase(
        "CREATE TABLE t AS SELECT id, COUNT(*) AS n FROM orders WINDOW SESSION (5 MINUTES)"
        " GROUP BY id EMIT FINAL",
        PlanKind.AGGREGATE,
        "id n",
        "id",
        "...GROUP BY `orders`.`id`, session_window(`orders`.`__time`, '300000 milliseconds')",
    ),
    PlanCase(
        "SELECT id, WINDOWSTART, WINDOWEND, COUNT(*) FROM orders WINDOW TUMBLING (SIZE 1 DAY)"
        " GROUP BY id EMIT CHANGES",
        PlanKind.AGGREGATE,
        "id WINDOWSTART WINDOWEND KSQL_COL_0",
        "id",
    ),
    PlanCase(
        "CREATE TABLE t AS SELECT id, LATEST_BY_OFFSET(amount) AS last,"
        " EARLIEST_BY_OFFSET(amount, 2, FALSE) AS firsts, LATEST_BY_OFFSET(qty, 3) AS three"
        " FROM orders GROUP BY id",
        PlanKind.AGGREGATE,
        "id last firsts three",
        "id",
        "...max_by(`orders`.`amount`, `orders`.`ROWOFFSET`)"
        " FILTER(WHERE NOT `orders`.`amount` IS NULL) AS `last`,"
        " min_by(`orders`.`amount`, `orders`.`ROWOFFSET`, 2) AS `firsts`...",
    ),
    PlanCase(
        "CREATE TABLE t AS SELECT customer, LATEST_BY_OFFSET(amount) AS last FROM orders"
        " GROUP BY customer",
        PlanKind.AGGREGATE,
        "customer last",
        "customer",
        "...max_by(`orders`.`amount`, struct(`orders`.`__time`, `orders`.`ROWOFFSET`))...",
    ),
    PlanCase(
        "CREATE TABLE t AS SELECT UCASE(id) AS k, address->geo->lat, COUNT_DISTINCT(qty) AS d,"
        " AS_VALUE(UCASE(id)) AS copy, UCASE(id) || 'x' AS x FROM orders"
        " GROUP BY UCASE(id), address->geo->lat",
        PlanKind.AGGREGATE,
        "k lat d copy x",
        "k lat",
    ),
    PlanCase(
        "CREATE TABLE t AS SELECT address, address->street, MAX(qty) AS m, 'constant' AS c"
        " FROM orders GROUP BY (address)",
        PlanKind.AGGREGATE,
        "address street m c",
        "address",
    ),
    PlanCase(
        "CREATE TABLE t AS SELECT qty * 2 AS twice, COUNT(*) AS n FROM orders GROUP BY twice",
        PlanKind.AGGREGATE,
        "twice n",
        "twice",
    ),
    PlanCase(
        "CREATE TABLE t AS SELECT qty, customer, COUNT(*) AS n FROM orders GROUP BY 1, 2",
        PlanKind.AGGREGATE,
        "qty customer n",
        "qty customer",
    ),
    PlanCase(
        "CREATE TABLE t AS SELECT EXPLODE(tags) AS tag, COUNT(*) AS n FROM orders GROUP BY tag",
        PlanKind.AGGREGATE,
        "tag n",
        "tag",
    ),
    PlanCase(
        "SELECT id, window(ROWTIME, '1 minute').start AS begin, COUNT(*) AS n FROM orders"
        " GROUP BY id, window(ROWTIME, '1 minute') EMIT CHANGES",
        PlanKind.AGGREGATE,
        "id begin n",
        "id",
        "...window(`orders`.`__time`, '1 minute').start AS `begin`...",
    ),
    PlanCase(
        "CREATE TABLE t AS SELECT paid, AVG(amount) AS a, MIN(qty) AS b, COLLECT_LIST(qty) AS c,"
        " COLLECT_SET(id) AS d, TOPK(qty, 3) AS e, TOPK(qty, id, amount, 3) AS f,"
        " TOPKDISTINCT(qty, 2) AS g, HISTOGRAM(id) AS h, CORRELATION(qty, amount) AS i,"
        " STDDEV_SAMPLE(amount) AS j, ATTR(qty) AS k, SUM_LIST(numbers) AS l,"
        " SUM(amount) FILTER (WHERE qty > 1) AS m, percentile_approx(amount, 0.5) AS n,"
        " CONCAT(MAX(id), '-', MIN(id)) AS o, MAX(ROWTIME) AS p FROM orders GROUP BY paid",
        PlanKind.AGGREGATE,
        "paid a b c d e f g h i j k l m n o p",
        "paid",
    ),
]
STREAM_JOINS = [
    PlanCase(
        "CREATE STREAM j AS SELECT o.id, p.amount, customer FROM orders o"
        " JOIN payments p WITHIN 1 HOUR ON o.id = p.order_id",
        PlanKind.STREAM_JOIN,
        "o_id p_amount customer",
        "o_id",
        "SELECT `o`.`id` AS `o_id`, `p`.`amount` AS `p_amount`, `o`.`customer` AS `customer`,"
        " greatest(`o`.`__time`, `p`.`__time`) AS `__time` FROM `o` JOIN `p`"
        " ON `o`.`id` = `p`.`order_id`"
        " AND `p`.`__time` >= `o`.`__time` - INTERVAL '3600000' MILLISECONDS"
        " AND `p`.`__time` <= `o`.`__time` + INTERVAL '3600000' MILLISECONDS",
    ),
    PlanCase(
        "CREATE STREAM j AS SELECT p.order_id AS k, o.amount AS a, ROWTIME AS t FROM orders o"
        " LEFT OUTER JOIN payments p WITHIN (10 MINUTES, 2 HOURS) GRACE PERIOD 3 MINUTES"
        " ON p.order_id = o.id AND p.amount > o.amount WHERE o.qty > 1 OR p.amount > 2",
        PlanKind.STREAM_JOIN,
        "k a t",
        "k",
        "SELECT `o`.`id` AS `k`...FROM `o` LEFT OUTER JOIN `p` ON `o`.`id` = `p`.`order_id`"
        " AND `p`.`amount` > `o`.`amount`"
        " AND `p`.`__time` >= `o`.`__time` - INTERVAL '600000' MILLISECONDS"
        " AND `p`.`__time` <= `o`.`__time` + INTERVAL '7200000' MILLISECONDS"
        " WHERE `o`.`qty` > 1 OR `p`.`amount` > 2",
    ),
    PlanCase(
        "CREATE STREAM j AS SELECT p.order_id, o.customer FROM orders o"
        " RIGHT JOIN payments p WITHIN 1 HOUR ON o.id = p.order_id",
        PlanKind.STREAM_JOIN,
        "order_id customer",
        "order_id",
    ),
    PlanCase(
        "CREATE STREAM j AS SELECT * FROM payments p FULL OUTER JOIN shipments s WITHIN 1 DAY"
        " ON p.order_id = s.order_id",
        PlanKind.STREAM_JOIN,
        "ROWKEY p_id p_order_id p_amount s_id s_order_id s_carrier",
        "ROWKEY",
        "SELECT coalesce(`p`.`order_id`, `s`.`order_id`) AS `ROWKEY`...",
    ),
    PlanCase(
        "CREATE STREAM j AS SELECT ROWKEY AS k, p.*, carrier FROM payments p JOIN shipments s"
        " WITHIN 1 DAY ON UCASE(p.order_id) = UCASE(s.order_id)",
        PlanKind.STREAM_JOIN,
        "k p_id p_order_id p_amount carrier",
        "k",
    ),
    PlanCase(
        "CREATE STREAM j AS SELECT s.order_id, o.qty, p.amount FROM orders o"
        " JOIN payments p WITHIN 1 HOUR ON o.id = p.order_id"
        " JOIN shipments s WITHIN 7 DAYS ON p.order_id = s.order_id",
        PlanKind.STREAM_JOIN,
        "s_order_id qty p_amount",
        "s_order_id",
    ),
    PlanCase(
        "CREATE STREAM j AS SELECT o.id, s.carrier FROM orders o"
        " JOIN payments p WITHIN 1 HOUR ON o.id = p.order_id"
        " LEFT JOIN shipments s WITHIN 7 DAYS ON o.id = s.order_id",
        PlanKind.STREAM_JOIN,
        "o_id carrier",
        "o_id",
    ),
    PlanCase(
        "CREATE STREAM j AS SELECT a.id, b.amount FROM payments a"
        " JOIN payments b WITHIN 1 HOUR ON a.order_id = b.order_id PARTITION BY a.id",
        PlanKind.STREAM_JOIN,
        "a_id b_amount",
        "a_id",
    ),
]
STATE_JOINS = [
    PlanCase(
        "CREATE STREAM j AS SELECT o.id, o.customer, c.name FROM orders o"
        " LEFT JOIN customers c ON o.customer = c.id WHERE c.name IS NOT NULL",
        PlanKind.STATE_JOIN,
        "o_id customer name",
        "customer",
        "SELECT `__join_0`.`l__id` AS `o_id`, `__join_0`.`l__customer` AS `customer`,"
        " `__join_0`.`r__name` AS `name`, `__join_0`.`__time` AS `__time` FROM `__join_0`"
        " WHERE NOT `__join_0`.`r__name` IS NULL",
    ),
    PlanCase(
        "CREATE STREAM j AS SELECT c.id, o.id AS order_id, EXPLODE(o.tags) AS tag FROM customers c"
        " JOIN orders o ON c.id = o.customer",
        PlanKind.STATE_JOIN,
        "c_id order_id tag",
        "c_id",
    ),
    PlanCase(
        "CREATE STREAM j AS SELECT t.region, o.id, c.name, r.name, rate FROM orders o"
        " JOIN customers c ON o.customer = c.id LEFT JOIN regions r ON c.region = r.id"
        " JOIN taxes t ON c.region = t.region",
        PlanKind.STATE_JOIN,
        "t_region o_id c_name r_name rate",
        "t_region",
        "...`__join_2`.`l__l__r__name` AS `c_name`, `__join_2`.`l__r__name` AS `r_name`,"
        " `__join_2`.`r__rate` AS `rate`...",
    ),
    PlanCase(
        "CREATE TABLE j AS SELECT r.id, r.name, t.rate FROM regions r JOIN taxes t"
        " ON r.id = t.region WHERE t.rate > 0",
        PlanKind.STATE_JOIN,
        "id name rate",
        "id",
        "SELECT `__join_0`.`l__id` AS `id`, `__join_0`.`l__name` AS `name`,"
        " `__join_0`.`r__rate` AS `rate`, `__join_0`.`__deleted` OR"
        " NOT coalesce(`__join_0`.`r__rate` > 0, FALSE) AS `__deleted`,"
        " `__join_0`.`__time` AS `__time` FROM `__join_0`",
    ),
    PlanCase(
        "CREATE TABLE j AS SELECT * FROM regions r FULL OUTER JOIN taxes t ON r.id = t.region",
        PlanKind.STATE_JOIN,
        "ROWKEY r_id r_name r_head t_region t_rate",
        "ROWKEY",
    ),
    PlanCase(
        "CREATE TABLE j AS SELECT t.region, r.name FROM regions r RIGHT JOIN taxes t"
        " ON r.id = t.region",
        PlanKind.STATE_JOIN,
        "region name",
        "region",
    ),
    PlanCase(
        "CREATE TABLE j AS SELECT s.warehouse, s.sku, n, price FROM stock s LEFT JOIN prices p"
        " ON s.warehouse = p.shop AND s.sku = p.sku",
        PlanKind.STATE_JOIN,
        "warehouse s_sku n price",
        "warehouse s_sku",
    ),
    PlanCase(
        "CREATE TABLE j AS SELECT t.region, r.name, u.head FROM regions r"
        " JOIN taxes t ON r.id = t.region LEFT JOIN regions u ON t.region = u.id",
        PlanKind.STATE_JOIN,
        "region r_name u_head",
        "region",
    ),
    PlanCase(
        "SELECT o.id, name FROM orders o JOIN customers c ON o.customer = c.id EMIT CHANGES"
        " LIMIT 2",
        PlanKind.STATE_JOIN,
        "o_id name",
    ),
]
CASES = [*STATELESS, *CHANGES, *AGGREGATES, *STREAM_JOINS, *STATE_JOINS]
