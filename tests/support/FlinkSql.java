import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.ResultKind;
import org.apache.flink.table.api.TableEnvironment;
import org.apache.flink.table.api.TableResult;
import org.apache.flink.types.Row;
import org.apache.flink.util.CloseableIterator;

/**
 * Runs the statements of standard input, one a line, in streaming mode and in this process. Arguments
 * are settings, as name=value.
 *
 * After each statement it writes the rows of its result, a line each (kind of the change and fields,
 * separated by tabs), and a line "done" with the milliseconds that it took.
 */
public class FlinkSql {
    public static void main(String[] arguments) throws Exception {
        TableEnvironment tables = TableEnvironment.create(EnvironmentSettings.inStreamingMode());
        for (String setting : arguments) {
            String[] parts = setting.split("=", 2);
            tables.getConfig().set(parts[0], parts[1]);
        }
        var input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String statement = input.readLine(); statement != null; statement = input.readLine()) {
            long began = System.nanoTime();
            TableResult result = tables.executeSql(statement);
            if (statement.startsWith("INSERT")) {
                result.await();
            } else if (result.getResultKind() == ResultKind.SUCCESS_WITH_CONTENT) {
                print(result);
            }
            System.out.println("done " + (System.nanoTime() - began) / 1_000_000);
            System.out.flush();
        }
        System.exit(0);
    }

    private static void print(TableResult result) throws Exception {
        try (CloseableIterator<Row> rows = result.collect()) {
            while (rows.hasNext()) {
                Row row = rows.next();
                List<String> fields = new ArrayList<>();
                fields.add(row.getKind().shortString());
                for (int index = 0; index < row.getArity(); index++) {
                    fields.add(String.valueOf(row.getField(index)));
                }
                System.out.println(String.join("\t", fields));
            }
        }
    }
}
