import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Savepoint;
import java.sql.Statement;
import org.postgresql.PGConnection;
import org.postgresql.jdbc.PreferQueryMode;

/**
 * pgjdbc on a database that may be sharded: tenants in WHERE, and a tenant said for each request. What
 * is printed is the same whether there are shards or not.
 */
public class Shards {
  static final int TENANTS = 12;
  static final String COUNT = "select count(*) from orders where account_id = ?";
  static final String INSERT = "insert into orders (account_id, id) values (?, ?)";
  static final String NOT_PROVED = "select count(*) from orders where account_id + 0 = ?";

  static Connection connect(String options) throws SQLException {
    String url = "jdbc:postgresql://" + System.getenv("PGHOST") + ":" + System.getenv("PGPORT") + "/"
        + System.getenv("PGDATABASE") + "?" + options;
    return DriverManager.getConnection(url, System.getenv("PGUSER"), System.getenv("PGPASSWORD"));
  }

  static int number(PreparedStatement statement, int tenant) throws SQLException {
    statement.setInt(1, tenant);
    try (ResultSet result = statement.executeQuery()) {
      result.next();
      return result.getInt(1);
    }
  }

  static int number(Connection conn, String text, int tenant) throws SQLException {
    try (PreparedStatement statement = conn.prepareStatement(text)) {
      return number(statement, tenant);
    }
  }

  static void insert(Connection conn, int tenant, int... ids) throws SQLException {
    try (PreparedStatement statement = conn.prepareStatement(INSERT)) {
      for (int id : ids) {
        statement.setInt(1, tenant);
        statement.setInt(2, id);
        statement.addBatch();
      }
      statement.executeBatch();
    }
  }

  static void execute(Connection conn, String text) throws SQLException {
    try (Statement statement = conn.createStatement()) {
      statement.execute(text);
    }
  }

  /** The first statement of each has a key; an error goes to a savepoint; rows are fetched in parts. */
  static void transactions(Connection conn) throws SQLException {
    conn.setAutoCommit(false);
    for (int tenant = 1; tenant <= TENANTS; tenant++) {
      int before = number(conn, COUNT, tenant);
      insert(conn, tenant, 500, 501);
      Savepoint savepoint = conn.setSavepoint();
      try {
        insert(conn, tenant, 500);
        throw new AssertionError("no error");
      } catch (SQLException problem) {
        conn.rollback(savepoint);
      }
      int rows = 0;
      try (PreparedStatement some =
          conn.prepareStatement("select id from orders where account_id = ? order by 1")) {
        some.setInt(1, tenant);
        some.setFetchSize(2);
        try (ResultSet result = some.executeQuery()) {
          while (result.next()) {
            rows++;
          }
        }
      }
      System.out.println("transaction " + tenant + " " + before + " " + rows);
      conn.rollback();
    }
    conn.setReadOnly(true);
    for (int tenant = 1; tenant <= TENANTS; tenant++) {
      System.out.println("read " + tenant + " " + number(conn, COUNT, tenant));
      conn.commit();
    }
    conn.setReadOnly(false);
    conn.setAutoCommit(true);
  }

  /** A statement that the server prepares, for all tenants; its parameter is described alone. */
  static void prepared(Connection conn) throws SQLException {
    try (PreparedStatement count = conn.prepareStatement(COUNT)) {
      if (conn.unwrap(PGConnection.class).getPreferQueryMode() != PreferQueryMode.SIMPLE) {
        System.out.println("types " + count.getParameterMetaData().getParameterTypeName(1) + " "
            + count.getMetaData().getColumnTypeName(1));
      }
      for (boolean autocommit : new boolean[] {true, false}) {
        conn.setAutoCommit(autocommit);
        for (int tenant = 1; tenant <= TENANTS; tenant++) {
          System.out.println("prepared " + tenant + " " + number(count, tenant));
          if (!autocommit) {
            conn.commit();
          }
        }
      }
      conn.setAutoCommit(true);
    }
  }

  /** Each says its tenant, and its statements don't. */
  static void requests(Connection conn) throws SQLException {
    for (int tenant = 1; tenant <= TENANTS; tenant++) {
      execute(conn, "set howdah.key = 'tenant:" + tenant + "'");
      System.out.println("request " + tenant + " " + number(conn, NOT_PROVED, tenant));
    }
    // The driver prepares a text that it has often seen.
    for (int turn = 0; turn < 8; turn++) {
      execute(conn, "set howdah.key = 'tenant:5'");
      System.out.println("again " + number(conn, NOT_PROVED, 5));
      execute(conn, "reset howdah.key");
    }
    conn.setAutoCommit(false);
    for (int tenant = 1; tenant <= TENANTS; tenant++) {
      execute(conn, "set local howdah.key = 'tenant:" + tenant + "'");
      System.out.println("in a transaction " + tenant + " " + number(conn, NOT_PROVED, tenant));
      conn.commit();
    }
    conn.setAutoCommit(true);
  }

  public static void main(String[] arguments) throws Exception {
    for (String options : new String[] {"", "prepareThreshold=1", "preferQueryMode=simple",
        "autosave=always", "preferQueryMode=extendedForPrepared"}) {
      System.out.println(options);
      try (Connection conn = connect(options)) {
        transactions(conn);
        prepared(conn);
        requests(conn);
      }
    }
    System.out.println("end 1");
  }
}
