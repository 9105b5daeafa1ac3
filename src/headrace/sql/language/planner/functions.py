"""Functions of ksqlDB that Spark does not have, or that mean something else there.

The table has Spark's SQL for them; `function_rewriting.py` puts it in their place, and has those
that are more than a text. All other functions are left as they are: Spark's own, and those of
CREATE FUNCTION. A function that both have means what it means in ksqlDB.
"""

_EARTH_KM = 6371
_EARTH_MILES = 3959
_DESCENDING = (
    "array_sort({0}, (__l, __r) -> CASE WHEN __l IS NULL AND __r IS NULL THEN 0"
    " WHEN __l IS NULL THEN 1 WHEN __r IS NULL THEN -1"
    " WHEN __l > __r THEN -1 WHEN __l < __r THEN 1 ELSE 0 END)"
)
_HAVERSINE = (
    "2 * {radius} * asin(least(1, sqrt(power(sin(radians({2} - {0}) / 2), 2)"
    " + cos(radians({0})) * cos(radians({2})) * power(sin(radians({3} - {1}) / 2), 2))))"
)
_MASKED = "mask({text}, 'X', 'x', 'n', '-')"
_PORT = "'^[^:/?#]+://[^/?#]*:([0-9]+)(?:[/?#]|$)'"
_ZIPPED = "to_json(array({0}), map('ignoreNullFields', 'false'))"


def _masked(text: str) -> str:
    return _MASKED.replace("{text}", text)


SPARK_SQL: dict[str, str] = {
    # Aggregates
    "ATTR/1": "if(min({0}) <=> max({0}) AND count({0}) = count(1), max({0}), NULL)",
    "CORRELATION/2": "corr({0}, {1})",
    "COUNT_DISTINCT/1": "approx_count_distinct({0}, 0.02)",
    "HISTOGRAM/1": (
        "map_from_entries(transform(collect_set(CAST({0} AS STRING)), __v -> struct(__v,"
        " CAST(size(filter(collect_list(CAST({0} AS STRING)), __w -> __w = __v)) AS BIGINT))))"
    ),
    "STDDEV_SAMPLE/1": "stddev_samp({0})",
    "SUM_LIST/1": "sum(aggregate({0}, CAST(0 AS BIGINT), (__s, __x) -> __s + __x))",
    "TOPK/2": "slice(sort_array(collect_list({0}), false), 1, {1})",
    "TOPKDISTINCT/2": "slice(sort_array(collect_set({0}), false), 1, {1})",
    # Numbers
    "GENERATE_SERIES/2": "sequence({0}, {1})",
    "GENERATE_SERIES/3": "sequence({0}, {1}, {2})",
    "GEO_DISTANCE/4": _HAVERSINE.replace("{radius}", str(_EARTH_KM)),
    "GEO_DISTANCE/5": (
        f"if(upper({{4}}) LIKE 'MI%', {_EARTH_MILES}, {_EARTH_KM}) * "
        + _HAVERSINE.replace("2 * {radius} * ", "2 * ")
    ),
    "LOG/1": "log10({0})",
    "SIGN/1": "CAST(sign({0}) AS INT)",
    "RANDOM/0": "rand()",
    # Collections
    "ARRAY_CONCAT/2": "coalesce(concat({0}, {1}), {0}, {1})",
    "ARRAY_JOIN/1": "array_join({0}, ',')",
    "ARRAY_LENGTH/1": "array_size({0})",
    "AS_MAP/2": "map_from_arrays({0}, {1})",
    "AS_VALUE/1": "{0}",
    "CUBE_EXPLODE/1": (
        "array_distinct(transform(sequence(0, CAST(power(2, size({0})) AS INT) - 1), __i ->"
        " transform({0}, (__x, __j) -> if(bit_get(__i, size({0}) - 1 - __j) = 1, __x, NULL))))"
    ),
    "ENTRIES/2": (
        "transform(if({1}, array_sort(map_entries({0})), map_entries({0})),"
        " __e -> struct(__e.key AS K, __e.value AS V))"
    ),
    "FIELD": "CAST(coalesce(array_position(array({1*}), {0}), 0) AS INT)",
    "JSON_ARRAY_CONTAINS/2": (
        "coalesce(array_contains(from_json({0}, 'array<string>'), CAST({1} AS STRING)), false)"
    ),
    "JSON_ITEMS/1": "from_json({0}, 'array<string>')",
    "JSON_KEYS/1": "json_object_keys({0})",
    "JSON_RECORDS/1": "from_json({0}, 'map<string,string>')",
    "MAP_UNION/2": (
        "coalesce(map_from_entries(concat(filter(map_entries({0}),"
        " __e -> NOT map_contains_key({1}, __e.key)), map_entries({1}))), {0}, {1})"
    ),
    "SLICE/3": "slice({0}, {1}, greatest({2} - {1} + 1, 0))",
    # Strings
    "EXTRACTJSONFIELD/2": "get_json_object({0}, {1})",
    "INSTR/3": "locate({1}, {0}, {2})",
    "IS_JSON_STRING/1": "(try_parse_json({0}) IS NOT NULL)",
    "MASK/1": _masked("{0}"),
    "MASK_KEEP_LEFT/2": f"concat(left({{0}}, {{1}}), {_masked('substring({0}, {1} + 1)')})",
    "MASK_KEEP_RIGHT/2": (
        "concat("
        + _masked("left({0}, greatest(length({0}) - {1}, 0))")
        + ", right({0}, least({1}, length({0}))))"
    ),
    "MASK_LEFT/2": f"concat({_masked('left({0}, {1})')}, substring({{0}}, {{1}} + 1))",
    "MASK_RIGHT/2": (
        "concat(left({0}, greatest(length({0}) - {1}, 0)), "
        + _masked("right({0}, least({1}, length({0})))")
        + ")"
    ),
    "REGEXP_EXTRACT/2": "regexp_substr({1}, {0})",
    "REGEXP_EXTRACT/3": "if(regexp_like({1}, {0}), regexp_extract({1}, {0}, {2}), NULL)",
    "REGEXP_EXTRACT_ALL/2": "regexp_extract_all({1}, {0}, 0)",
    "REGEXP_EXTRACT_ALL/3": "regexp_extract_all({1}, {0}, {2})",
    "REGEXP_SPLIT_TO_ARRAY/2": "split({0}, {1})",
    "SPLIT/2": "split({0}, concat('\\Q', {1}, '\\E'))",
    "SPLIT_TO_MAP/3": "str_to_map({0}, concat('\\Q', {1}, '\\E'), concat('\\Q', {2}, '\\E'))",
    "TO_JSON_STRING/1": f"substring({_ZIPPED}, 2, length({_ZIPPED}) - 2)",
    "URL_DECODE_PARAM/1": "try_url_decode({0})",
    "URL_ENCODE_PARAM/1": "url_encode({0})",
    "URL_EXTRACT_FRAGMENT/1": "try_parse_url({0}, 'REF')",
    "URL_EXTRACT_HOST/1": "try_parse_url({0}, 'HOST')",
    "URL_EXTRACT_PARAMETER/2": "try_parse_url({0}, 'QUERY', {1})",
    "URL_EXTRACT_PATH/1": "try_parse_url({0}, 'PATH')",
    "URL_EXTRACT_PORT/1": f"CAST(nullif(regexp_extract({{0}}, {_PORT}, 1), '') AS INT)",
    "URL_EXTRACT_PROTOCOL/1": "try_parse_url({0}, 'PROTOCOL')",
    "URL_EXTRACT_QUERY/1": "try_parse_url({0}, 'QUERY')",
    # Bytes
    "BIGINT_FROM_BYTES/1": (
        "if(octet_length({0}) = 8, CAST(conv(hex({0}), 16, -10) AS BIGINT), NULL)"
    ),
    "INT_FROM_BYTES/1": (
        "if(octet_length({0}) = 4, CAST(shiftright(shiftleft("
        "CAST(conv(hex({0}), 16, 10) AS BIGINT), 32), 32) AS INT), NULL)"
    ),
    # Dates and times
    "CONVERT_TZ/3": "from_utc_timestamp(to_utc_timestamp({0}, {1}), {2})",
    "DATETOSTRING/2": "date_format(date_from_unix_date({0}), {1})",
    "FORMAT_DATE/2": "date_format({0}, {1})",
    "FORMAT_TIME/2": "date_format({0}, {1})",
    "FORMAT_TIMESTAMP/2": "date_format({0}, {1})",
    "FORMAT_TIMESTAMP/3": "date_format(from_utc_timestamp({0}, {2}), {1})",
    "FROM_DAYS/1": "date_from_unix_date({0})",
    "FROM_UNIXTIME/1": "timestamp_millis({0})",
    "PARSE_DATE/2": "try_to_date({0}, {1})",
    "PARSE_TIME/2": "try_to_time({0}, {1})",
    "PARSE_TIMESTAMP/2": "try_to_timestamp({0}, {1})",
    "PARSE_TIMESTAMP/3": "to_utc_timestamp(try_to_timestamp({0}, {1}), {2})",
    "STRINGTODATE/2": "unix_date(try_to_date({0}, {1}))",
    "STRINGTOTIMESTAMP/2": "unix_millis(try_to_timestamp({0}, {1}))",
    "STRINGTOTIMESTAMP/3": "unix_millis(to_utc_timestamp(try_to_timestamp({0}, {1}), {2}))",
    "TIMESTAMPTOSTRING/2": "date_format(timestamp_millis({0}), {1})",
    "TIMESTAMPTOSTRING/3": "date_format(from_utc_timestamp(timestamp_millis({0}), {2}), {1})",
    "UNIX_DATE/0": "unix_date(current_date())",
    "UNIX_TIMESTAMP/0": "unix_millis(current_timestamp())",
    "UNIX_TIMESTAMP/1": "unix_millis({0})",
    # Used by function_rewriting.py
    "array sorted downwards/1": _DESCENDING,
}
"""By name and number of arguments. `{0}` is the first argument, `{1*}` all from the second on."""

SAME_NAME_IN_SPARK = frozenset(
    {"ARRAY_JOIN", "FROM_UNIXTIME", "INSTR", "LOG", "MASK", "RANDOM", "SPLIT", "UNIX_DATE"}
)
"""Of the table: with another number of arguments they are Spark's."""

IMPOSSIBLE = {
    "JSON_CONCAT": "Spark has no function that joins JSON texts; use from_json and to_json",
    "DOUBLE_FROM_BYTES": "Spark has no function for it; write one in Python (CREATE FUNCTION)",
    "ZIP": "use arrays_zip",
}
"""Functions of ksqlDB that have no counterpart, and what to do."""

TABLE_FUNCTIONS = frozenset({"EXPLODE", "CUBE_EXPLODE"})
"""Functions that make several rows of one."""

AGGREGATES = frozenset(
    {
        "ANY", "ANY_VALUE", "APPROX_COUNT_DISTINCT", "APPROX_PERCENTILE", "APPROX_TOP_K",
        "ARRAY_AGG", "ATTR", "AVG", "BIT_AND", "BIT_OR", "BIT_XOR", "BOOL_AND", "BOOL_OR",
        "COLLECT_LIST", "COLLECT_SET", "CORR", "CORRELATION", "COUNT", "COUNT_DISTINCT",
        "COUNT_IF", "COVAR_POP", "COVAR_SAMP", "EARLIEST_BY_OFFSET", "EVERY", "FIRST",
        "FIRST_VALUE", "HISTOGRAM", "HISTOGRAM_NUMERIC", "HLL_SKETCH_AGG", "KURTOSIS", "LAST",
        "LAST_VALUE", "LATEST_BY_OFFSET", "LISTAGG", "MAX", "MAX_BY", "MEAN", "MEDIAN", "MIN",
        "MIN_BY", "MODE", "PERCENTILE", "PERCENTILE_APPROX", "REGR_COUNT", "REGR_R2",
        "REGR_SLOPE", "SKEWNESS", "SOME", "STD", "STDDEV", "STDDEV_POP", "STDDEV_SAMP",
        "STDDEV_SAMPLE", "STRING_AGG", "SUM", "SUM_LIST", "TOPK", "TOPKDISTINCT", "TRY_AVG",
        "TRY_SUM", "VARIANCE", "VAR_POP", "VAR_SAMP",
    }
)  # fmt: skip
"""Functions over the rows of a group, Spark's and ksqlDB's."""
