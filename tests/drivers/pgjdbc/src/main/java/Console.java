import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;

/**
 * Reads the console with pgjdbc's defaults: the extended protocol always, named statements from the
 * fifth use on, and with them results in binary format.
 */
public class Console {
  static int rows(ResultSet result) throws SQLException {
    int rows = 0;
    while (result.next()) {
      for (int column = 1; column <= result.getMetaData().getColumnCount(); column++) {
        result.getObject(column);
      }
      rows++;
    }
    return rows;
  }

  public static void main(String[] tables) throws Exception {
    String url = "jdbc:postgresql://" + System.getenv("PGHOST") + ":" + System.getenv("PGPORT") + "/"
        + System.getenv("PGDATABASE");
    Connection conn =
        DriverManager.getConnection(url, System.getenv("PGUSER"), System.getenv("PGPASSWORD"));
    for (int turn = 1; turn <= 2; turn++) {
      for (String table : tables) {
        try (Statement statement = conn.createStatement()) {
          System.out.println(table + " " + rows(statement.executeQuery("show " + table)));
        }
      }
    }
    try (PreparedStatement stats = conn.prepareStatement("show stats")) {
      for (int turn = 0; turn < 8; turn++) {
        rows(stats.executeQuery());
      }
    }
    try (PreparedStatement pause = conn.prepareStatement("pause ?")) {
      pause.setString(1, "postgres");
      pause.execute();
    }
    try (Statement statement = conn.createStatement()) {
      statement.execute("resume postgres");
      try {
        statement.execute("show nothing");
        throw new AssertionError("no error");
      } catch (SQLException problem) {
        if (!"08P01".equals(problem.getSQLState())) {
          throw problem;
        }
      }
    }
    if (!conn.isValid(5)) {
      throw new AssertionError("not valid");
    }
    conn.setReadOnly(true);
    conn.setAutoCommit(false);
    try (Statement statement = conn.createStatement()) {
      statement.setFetchSize(2);
      rows(statement.executeQuery("show lists"));
    }
    conn.commit();
    conn.close();
    System.out.println("end 1");
  }
}
