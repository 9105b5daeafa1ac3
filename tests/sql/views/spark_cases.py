"""Queries that views answer as Spark does."""

EXPRESSIONS = """
id, n + 1, i + n, i - l
x + y, x - 1, x * 2.5, x * x, y / 3, x / 0.5, x % 3, -x, x + n
i + 1.5, 1.5 + 2, 7 / 2, 7.0 / 2
CASE WHEN i > 0 THEN 'pos' WHEN i < 0 THEN 'neg' ELSE 'none' END
CASE s WHEN 'x' THEN 1 WHEN 'y' THEN 2.5 END
if(b, 1, 2), if(b, i, n), nullif(s, 'x'), nullif(i, 0), coalesce(i, -1), coalesce(s, u, 'n')
ifnull(x, 0), nvl(d, 0), nvl2(s, 1, 2)
greatest(i, 5), least(i, n, 0), greatest(s, 'xx'), greatest(d, 2), least(d, 2)
isnull(s), isnotnull(s), isnan(d)
i = 1, i <> 1, i <=> NULL, s <=> 'x', i IS NULL, i IS NOT NULL, b IS TRUE, b IS NOT FALSE
i BETWEEN 0 AND 10, x BETWEEN 0 AND 12.5, day BETWEEN '2024-01-01' AND '2025-01-01'
i IN (1, 2, NULL), s IN ('x', 'y'), x IN (12.5, 0), n IN (7, 4611686018427387904)
b AND i > 0, b OR i > 0, NOT b, b = true, b AND NULL
d > 1, d = 1.5, x > y, x = 12.5, x < n, d > x, n > 1.5, i < d
day = '2024-02-29', day > '1970-01-01', at >= '2026-01-01', at < '2026-06-30 00:00:00.001', at > day
upper(u), lower(u), length(u), length(o), substring(u, 2, 3), substring(u, -3), substring(u, 0, 2)
substr(u, 2), left(u, 2), right(u, 2), concat(s, '-', u), s || u, concat_ws(',', s, u, 'z')
instr(u, 'b'), locate('b', u), locate('a', u, 2), lpad(s, 3, '*'), rpad(s, 3, 'ab'), lpad(u, 2, '')
trim(u), ltrim('  x '), rtrim(u), trim('Ü', u), replace(u, '0', '#'), reverse(u), repeat(s, 3)
initcap('hELLO wORLD x'), startswith(u, 'Ü'), endswith(u, ' '), contains(u, '100'), ascii(u)
u LIKE '%100%', u LIKE 'it_s%', u LIKE '%#%_' ESCAPE '#', s LIKE 'X', s ILIKE 'X', u LIKE '', u
    NOT LIKE 'a%'
md5(s), sha1(s), sha2(s, 256), crc32(s), hex(s), hex(i), base64(o), octet_length(u)
sqrt(4), sqrt(-1), sqrt(n), sqrt(x)
pmod(i, 3), mod(i, 3), pmod(-7, 3)
year(day), month(day), day(day), quarter(day), dayofweek(day), weekday(day), dayofyear(day),
    weekofyear(day)
year(at), hour(at), minute(at), second(at), dayofmonth(at)
date_add(day, 5), date_sub(day, 1), datediff(day, '2024-01-01'), add_months(day, 1), last_day(day)
day + 1, day - 3, day + INTERVAL 1 MONTH, at + INTERVAL 90 MINUTES, at - INTERVAL 1 YEAR, at +
    INTERVAL 2 DAYS
date_trunc('HOUR', at), date_trunc('week', at), date_trunc('MONTH', at), trunc(day, 'MM'),
    trunc(day, 'year')
date_format(at, 'yyyy-MM-dd HH:mm:ss.SSS'), date_format(day, 'EEE d MMM yy'), date_format(at,
    'h:mm a')
to_date('2026-03-04'), to_date('04/03/2026', 'dd/MM/yyyy'), to_timestamp('2026-03-04 05:06:07')
unix_millis(at), unix_seconds(at), unix_micros(at), unix_date(day), date_from_unix_date(i % 1000)
timestamp_millis(1767323045678), timestamp_seconds(n % 1000), make_date(2026, 2, 3)
timestamptostring(1767323045678, 'yyyy-MM-dd'), format_timestamp(at, 'HH:mm'),
    parse_date('2026-01-02', 'yyyy-MM-dd')
stringtotimestamp('2026-01-02', 'yyyy-MM-dd'), unix_timestamp(at)
r->name, r->place->lat, r->place->n + 1, r->`odd name`, r, r->place
a, w, m, array_length(a), m['k'], m['nothing'], element_at(m, 'j')
array_contains(a, 2), array_contains(w, 'p'), map_keys(m), map_values(m), array_join(w)
array(1, 2), array(i, n), array(s, 'x'), named_struct('p', i, 'q', s), struct(i AS p, b AS q, a
    AS z)
CAST(i AS STRING), CAST(n AS DOUBLE), CAST(d AS STRING), CAST(x AS STRING), CAST(x AS INT),
    CAST(x AS DOUBLE)
CAST(b AS STRING), CAST(b AS INT), CAST(day AS STRING), CAST(at AS STRING), CAST(at AS DATE),
    CAST(day AS TIMESTAMP)
CAST('5' AS INT), CAST(' 7 ' AS BIGINT), CAST('1.5' AS DOUBLE), CAST('2.345' AS DECIMAL(5,2)),
    CAST(i AS DECIMAL(12,1))
CAST(x AS DECIMAL(20,4)), CAST(1.5 AS INT), CAST(i AS BOOLEAN), CAST(n % 100 AS SMALLINT),
    CAST(f AS DOUBLE)
CAST('2026-01-02' AS DATE), CAST('2026-01-02 03:04' AS TIMESTAMP), DATE '2026-01-02', CAST(f AS
    STRING)
get_json_object('{"a":{"b":[1,"x"]}}', '$.a.b[1]'), extractjsonfield('{"a":5}', '$.a'), NULL,
    'it''s'
"""
"""Columns of `SELECT ... FROM things`, all rows."""

WITHOUT_NAN = """
i / 4, n / 7, i div 2, i % 3, -i, - d
abs(i), abs(n), sign(i), sign(d - 1)
x + d, x * d
d + 1, d * 2, d / 2, d % 2
round(d, 1), round(2.345, 2), round(i, -1), round(d), round(x, 1), ceil(1.2e0), floor(-1.2e0)
n % 9 * 2, (i + 1) * (l - 1), -(-i)
a[1], w[-1], a[1] + r->place->n
"""
"""The same for `WHERE id IN ('a', 'e')`: views do not calculate with NaN, and have no elements of
arrays that are not there."""

QUERIES = """
SELECT * FROM things WHERE id = 'a'
SELECT * FROM groups
SELECT *, ROWTIME, ROWPARTITION, ROWOFFSET FROM groups WHERE ROWTIME >= 1001
SELECT id FROM things WHERE b
SELECT id FROM things WHERE NOT b OR s IS NULL ORDER BY id DESC
SELECT id, x FROM things ORDER BY x
SELECT id, y FROM things ORDER BY y DESC, id LIMIT 3
SELECT id, d FROM things ORDER BY d
SELECT id, d FROM things ORDER BY d DESC NULLS FIRST
SELECT id, n AS m FROM things ORDER BY 2, 1 LIMIT 2
SELECT count(*) AS c, count(i) AS ci, sum(i) AS si, avg(i) AS ai, min(s) AS mi, max(u) AS mu
    FROM things
SELECT sum(x) AS sx, avg(x) AS ax, min(x) AS nx, max(y) AS my, sum(y) AS sy, avg(l) AS al FROM
    things
SELECT count(DISTINCT s) AS c, sum(DISTINCT i) AS t FROM things WHERE i < 10
SELECT s, count(*) AS c, sum(i) AS t FROM things GROUP BY s ORDER BY s
SELECT s, b, count(*) AS c FROM things GROUP BY s, b HAVING count(*) > 0 ORDER BY c DESC, s, b
SELECT upper(s) AS big, count(*) + 1 AS c FROM things GROUP BY upper(s)
SELECT s AS g, max(x) - min(x) AS spread FROM things GROUP BY g
SELECT i % 2 AS odd, collect_list(id) AS ids FROM things WHERE i IS NOT NULL AND id < 'b' GROUP BY 1
SELECT count(*) FILTER (WHERE b) AS yes, count_if(i > 0) AS pos, bool_or(b) AS any_b,
    bool_and(b) AS all_b FROM things
SELECT DISTINCT s FROM things ORDER BY s
SELECT DISTINCT b, l > 0 AS p FROM things
SELECT things.id, label FROM things JOIN groups ON things.s = groups.k
SELECT t.id, g.label, t.n AS tn, g.n AS gn FROM things t LEFT JOIN groups g ON t.s = g.k WHERE
    t.id < 'e'
SELECT t.id, g.k FROM things t RIGHT JOIN groups g ON t.s = g.k
SELECT t.id, g.k FROM things t FULL OUTER JOIN groups g ON t.s = g.k
SELECT * FROM things t JOIN groups g ON t.s = g.k AND g.weight > 1
SELECT g.label, count(*) AS c FROM things t JOIN groups g ON t.s = g.k GROUP BY g.label ORDER BY c
SELECT a.id AS one, b.id AS two FROM things a JOIN things b ON a.s = b.s AND a.id < b.id
SELECT c.s, c.total FROM (SELECT s, sum(i) AS total FROM things WHERE i < 100 GROUP BY s) c
    WHERE c.total > 0
WITH c AS (SELECT s, count(*) AS n FROM things GROUP BY s) SELECT groups.label, c.n FROM c JOIN
    groups ON c.s = groups.k
SELECT id FROM things WHERE s IN (SELECT k FROM groups WHERE weight > 1)
SELECT k FROM groups WHERE EXISTS (SELECT 1 AS one FROM things WHERE things.s = groups.k)
SELECT id, (SELECT max(weight) AS w FROM groups) AS most FROM things WHERE i > 0
SELECT id FROM things UNION ALL SELECT k FROM groups
SELECT s FROM things UNION SELECT k FROM groups
SELECT s FROM things INTERSECT SELECT k FROM groups
SELECT k FROM groups EXCEPT SELECT s FROM things
SELECT i FROM things UNION ALL SELECT weight FROM groups
SELECT id FROM things WHERE id IN ('a', 'c') ORDER BY id OFFSET 1
SELECT id FROM things WHERE day + 1 > '2024-03-01' AND hour(at) = 0
SELECT id, r->place->n AS n FROM things WHERE r->place->lat > 0
SELECT min(d) AS low FROM things WHERE d < 5
SELECT sum(d) AS t, avg(d) AS m FROM things WHERE id IN ('a', 'b')
SELECT max(d) AS nan FROM things
SELECT day, count(*) AS c FROM things GROUP BY day
SELECT d, count(*) AS c FROM things GROUP BY d
SELECT x, count(*) AS c FROM things GROUP BY x
SELECT 1 AS one, 'x' AS two
"""

REFUSED_BY_VIEWS = """
SELECT i / 0 AS q FROM things
SELECT i + 1 AS q FROM things
SELECT CAST(u AS INT) AS q FROM things
SELECT sum(n) AS q FROM (SELECT n FROM things UNION ALL SELECT n FROM things) z
SELECT sum(d) AS q FROM things
SELECT a[9] AS q FROM things WHERE a IS NOT NULL
SELECT s, i FROM things GROUP BY s
SELECT s + 1 AS q FROM things
SELECT id FROM things WHERE s = 5
SELECT row_number() OVER (ORDER BY id) AS q FROM things
SELECT transform(a, e => e + 1) AS q FROM things
SELECT regexp_replace(s, 'x', 'y') AS q FROM things
SELECT size(a) AS q FROM things
SELECT (SELECT k FROM groups) AS q FROM things
SELECT explode(a) AS q FROM things
"""
"""Queries that are Spark's: functions that views do not have, and results that Spark may refuse."""


def statements() -> list[str]:
    """All queries that views answer."""
    return [
        *(f"SELECT {each} FROM things" for each in lines(EXPRESSIONS)),
        *(f"SELECT {each} FROM things WHERE id IN ('a', 'e')" for each in lines(WITHOUT_NAN)),
        *lines(QUERIES),
    ]


def lines(text: str) -> list[str]:
    """One a line; a line that begins with spaces belongs to the one before it."""
    return text.strip().replace("\n    ", " ").splitlines()
