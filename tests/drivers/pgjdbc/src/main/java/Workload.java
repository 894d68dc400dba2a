import java.io.StringReader;
import java.io.StringWriter;
import java.sql.BatchUpdateException;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Savepoint;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import org.postgresql.PGConnection;
import org.postgresql.largeobject.LargeObject;
import org.postgresql.largeobject.LargeObjectManager;

/**
 * pgjdbc with its defaults: named statements from the fifth use on, portals with a fetch size,
 * batches, COPY, large objects by function calls, cancel. The server is told by PGHOST, PGPORT,
 * PGUSER, PGPASSWORD and PGDATABASE. Prints one line "behaviour count" for each that went as it must.
 */
public class Workload {
  static final int CLIENTS = 8;
  static final Connection[] conns = new Connection[CLIENTS];
  static final ExecutorService threads = Executors.newCachedThreadPool();

  interface Work {
    void on(int index, Connection conn) throws Exception;
  }

  interface Attempt {
    void run() throws Exception;
  }

  static void same(Object got, Object wanted, String what) {
    if (!Objects.equals(got, wanted)) {
      throw new AssertionError(what + ": got " + got + ", not " + wanted);
    }
  }

  static void done(String behaviour, int count) {
    System.out.println(behaviour + " " + count);
  }

  static void onAll(Work work) throws Exception {
    List<Future<?>> running = new ArrayList<>();
    for (int i = 0; i < CLIENTS; i++) {
      int index = i;
      running.add(threads.submit(() -> {
        work.on(index, conns[index]);
        return null;
      }));
    }
    for (Future<?> one : running) {
      one.get();
    }
  }

  static Connection connect(int index) throws SQLException {
    String url = "jdbc:postgresql://" + System.getenv("PGHOST") + ":" + System.getenv("PGPORT") + "/"
        + System.getenv("PGDATABASE") + "?ApplicationName=pgjdbc" + index;
    if (System.getenv("PGSSLMODE") != null) {
      url += "&sslmode=" + System.getenv("PGSSLMODE") + "&sslrootcert="
          + System.getenv("PGSSLROOTCERT") + "&channelBinding=" + System.getenv("PGCHANNELBINDING");
    }
    return DriverManager.getConnection(url, System.getenv("PGUSER"), System.getenv("PGPASSWORD"));
  }

  static void refused(String state, Attempt attempt) throws Exception {
    try {
      attempt.run();
    } catch (SQLException problem) {
      same(problem.getSQLState(), state, problem.getMessage());
      return;
    }
    throw new AssertionError("not refused with " + state);
  }

  static PreparedStatement bound(Connection conn, String text, Object... values)
      throws SQLException {
    PreparedStatement statement = conn.prepareStatement(text);
    for (int i = 0; i < values.length; i++) {
      statement.setObject(i + 1, values[i]);
    }
    return statement;
  }

  static Object one(Connection conn, String text, Object... values) throws SQLException {
    try (PreparedStatement statement = bound(conn, text, values);
        ResultSet rows = statement.executeQuery()) {
      rows.next();
      return rows.getObject(1);
    }
  }

  static int update(Connection conn, String text, Object... values) throws SQLException {
    try (PreparedStatement statement = bound(conn, text, values)) {
      return statement.executeUpdate();
    }
  }

  static void run(Connection conn, String text) throws SQLException {
    try (Statement statement = conn.createStatement()) {
      statement.execute(text);
    }
  }

  static void connects() throws Exception {
    onAll((index, conn) -> conns[index] = connect(index));
    onAll((index, conn) -> same(one(conn, "select current_setting('application_name')"),
        "pgjdbc" + index, "application_name"));
    done("connect", CLIENTS);
  }

  static void repeats() throws Exception {
    onAll((index, conn) -> {
      try (PreparedStatement shared = conn.prepareStatement("select ?::text || '!'");
          PreparedStatement own = conn.prepareStatement("select ?::int + " + index * 1000)) {
        for (int turn = 0; turn < 40; turn++) {
          shared.setString(1, index + "." + turn);
          try (ResultSet rows = shared.executeQuery()) {
            rows.next();
            same(rows.getString(1), index + "." + turn + "!", "shared text");
          }
          own.setInt(1, turn);
          try (ResultSet rows = own.executeQuery()) {
            rows.next();
            same(rows.getInt(1), index * 1000 + turn, "own text");
          }
          same(one(conn, "select ?::int", index * 100 + turn), index * 100 + turn, "cached");
        }
        // The same text with another type is another statement.
        for (int turn = 0; turn < 12; turn++) {
          Object value = turn % 2 == 0 ? (Object) turn : (Object) ("t" + turn);
          same(String.valueOf(one(conn, "select ?", value)), String.valueOf(value), "types");
        }
      }
      for (int turn = 0; turn < 300; turn++) { // pgjdbc keeps 256
        PreparedStatement many = bound(conn, "select ?::int + " + turn, index);
        many.unwrap(org.postgresql.PGStatement.class).setPrepareThreshold(1);
        try (many; ResultSet rows = many.executeQuery()) {
          rows.next();
          same(rows.getInt(1), index + turn, "one of many statements");
        }
      }
    });
    done("prepared by use", CLIENTS * 40);
  }

  static void transactions() throws Exception {
    run(conns[0], "drop table if exists pgjdbc_rows");
    run(conns[0], "create table pgjdbc_rows (owner int, body text)");
    String insert = "insert into pgjdbc_rows values (?, ?)";
    onAll((index, conn) -> {
      conn.setAutoCommit(false);
      for (int turn = 0; turn < 8; turn++) {
        same(update(conn, insert, index, "kept"), 1, "rows inserted");
        Savepoint savepoint = conn.setSavepoint();
        update(conn, insert, index, "undone");
        refused("22012", () -> one(conn, "select 1 / ?::int", 0));
        refused("25P02", () -> update(conn, insert, index, "in a failed transaction"));
        conn.rollback(savepoint);
        run(conn, "set local work_mem = '" + (index + 1) + "MB'");
        same(one(conn, "show work_mem"), (index + 1) + "MB", "set local");
        conn.commit();
        same(one(conn, "show work_mem"), "4MB", "after set local");
        update(conn, insert, index, "rolled back");
        conn.rollback();
      }
      conn.setAutoCommit(true);
      same(one(conn, "select count(*) from pgjdbc_rows where owner = ?", index), 8L, "rows kept");
      conn.setReadOnly(true);
      conn.setAutoCommit(false);
      same(one(conn, "select count(*) from pgjdbc_rows where owner = ?", index), 8L, "rows, read only");
      refused("25006", () -> update(conn, insert, index, "read only"));
      conn.rollback();
      conn.setAutoCommit(true);
      conn.setReadOnly(false);
    });
    done("transactions", CLIENTS * 8);
  }

  static void batches() throws Exception {
    run(conns[0], "drop table if exists pgjdbc_batch");
    run(conns[0], "create table pgjdbc_batch (owner int, n serial, m int, primary key (owner, m))");
    onAll((index, conn) -> {
      for (int turn = 0; turn < 4; turn++) {
        try (PreparedStatement batch = conn.prepareStatement(
            "insert into pgjdbc_batch (owner, m) values (?, ?)", new String[] {"m"})) {
          for (int i = 0; i < 300; i++) {
            batch.setInt(1, index);
            batch.setInt(2, turn * 300 + i);
            batch.addBatch();
          }
          same(Arrays.stream(batch.executeBatch()).sum(), 300, "rows of a batch");
          try (ResultSet keys = batch.getGeneratedKeys()) {
            for (int i = 0; keys.next(); i++) {
              same(keys.getInt(1), turn * 300 + i, "generated key");
            }
          }
          for (int i = 0; i < 200; i++) {
            batch.setInt(1, index);
            batch.setInt(2, 100000 + i % 150);
            batch.addBatch();
          }
          try {
            batch.executeBatch();
            throw new AssertionError("a batch with a duplicate was not refused");
          } catch (BatchUpdateException problem) {
            same(problem.getSQLState(), "23505", "duplicate in a batch");
          }
        }
        try (Statement several = conn.createStatement()) {
          several.execute("select " + index + "; select " + turn);
          same(several.getMoreResults(), true, "second of two statements");
          several.getResultSet().next();
          same(several.getResultSet().getInt(1), turn, "second of two statements");
        }
        update(conn, "delete from pgjdbc_batch where owner = ? and m >= 100000", index);
      }
      same(one(conn, "select count(*) from pgjdbc_batch where owner = ?", index), 1200L, "rows");
    });
    done("batches", CLIENTS * 4);
  }

  static void portals() throws Exception {
    onAll((index, conn) -> {
      conn.setAutoCommit(false);
      for (int turn = 0; turn < 8; turn++) {
        try (PreparedStatement query = bound(conn,
            "select ?::int * 1000 + i from generate_series(1, 100) i", index)) {
          query.setFetchSize(9);
          try (ResultSet rows = query.executeQuery();
              PreparedStatement inner = conn.prepareStatement("select ?::int")) {
            for (int i = 1; rows.next(); i++) {
              same(rows.getInt(1), index * 1000 + i, "row of a portal");
              if (i % 20 == 0) { // another statement while the portal is open
                same(one(conn, "select ?::int", i), i, "beside a portal");
              }
              if (turn % 2 == 1 && i == 50) {
                break; // the portal is closed with rows left
              }
            }
          }
        }
        conn.commit();
      }
      conn.setAutoCommit(true);
    });
    done("portals", CLIENTS * 8);
  }

  static void largeObjects() throws Exception {
    onAll((index, conn) -> {
      conn.setAutoCommit(false);
      LargeObjectManager objects = conn.unwrap(PGConnection.class).getLargeObjectAPI();
      long oid = objects.createLO(LargeObjectManager.READWRITE);
      byte[] bytes = new byte[100000];
      Arrays.fill(bytes, (byte) index);
      try (LargeObject object = objects.open(oid, LargeObjectManager.WRITE)) {
        object.write(bytes);
      }
      conn.commit();
      try (LargeObject object = objects.open(oid, LargeObjectManager.READ)) {
        same(Arrays.equals(object.read(bytes.length), bytes), true, "large object");
      }
      objects.delete(oid);
      conn.commit();
      conn.setAutoCommit(true);
    });
    done("large objects", CLIENTS);
  }

  static void copies() throws Exception {
    run(conns[0], "drop table if exists pgjdbc_copied");
    run(conns[0], "create table pgjdbc_copied (owner int, n int, body text, primary key (owner, n))");
    onAll((index, conn) -> {
      StringBuilder lines = new StringBuilder();
      for (int n = 0; n < 300; n++) {
        lines.append(index).append('\t').append(n).append('\t').append("x".repeat(200)).append('\n');
      }
      var copy = conn.unwrap(PGConnection.class).getCopyAPI();
      String in = "copy pgjdbc_copied from stdin";
      same(copy.copyIn(in, new StringReader(lines.toString())), 300L, "rows copied");
      StringWriter out = new StringWriter();
      copy.copyOut("copy (select * from pgjdbc_copied where owner = " + index
          + " order by n) to stdout", out);
      same(out.toString(), lines.toString(), "copied out");
      refused("23505", () -> copy.copyIn(in, new StringReader(lines.toString())));
      var given = copy.copyIn(in);
      given.cancelCopy();
      same(one(conn, "select count(*) from pgjdbc_copied where owner = ?", index), 300L, "rows");
    });
    done("copies", CLIENTS);
  }

  static void cancels() throws Exception {
    AtomicBoolean stop = new AtomicBoolean();
    List<Future<?>> beside = new ArrayList<>();
    for (int index = 4; index < 7; index++) {
      int own = index;
      beside.add(threads.submit(() -> {
        for (int turn = 0; !stop.get(); turn++) {
          same(one(conns[own], "select ?::int", own * 100000 + turn), own * 100000 + turn, "beside");
        }
        return null;
      }));
    }
    for (int index = 0; index < 4; index++) {
      Connection conn = conns[index];
      String mark = "select pg_sleep(60) /* pgjdbc " + index + " */";
      try (Statement sleeper = conn.createStatement()) {
        Future<?> asleep = threads.submit(() -> {
          refused("57014", () -> sleeper.execute(mark));
          return null;
        });
        while (one(conns[7], "select count(*) from pg_stat_activity where state = 'active' "
            + "and query = ?", mark).equals(0L)) {
          Thread.onSpinWait();
        }
        sleeper.cancel();
        asleep.get();
      }
      same(one(conn, "select ?::int", index), index, "after a cancel");
    }
    try (Statement slow = conns[0].createStatement()) {
      slow.setQueryTimeout(1);
      refused("57014", () -> slow.execute("select pg_sleep(60)"));
    }
    same(one(conns[0], "select ?::int", 5), 5, "after a timeout");
    stop.set(true);
    for (Future<?> one : beside) {
      one.get();
    }
    done("cancels", 5);
  }

  static void large() throws Exception {
    onAll((index, conn) -> {
      String text = String.valueOf((char) ('a' + index)).repeat(1 << 20);
      for (int turn = 0; turn < 2; turn++) {
        same(text.equals(one(conn, "select ?::text", text)), true, "1 MB unchanged");
      }
    });
    done("1 MB parameters", CLIENTS * 2);
  }

  static void notices() throws Exception {
    onAll((index, conn) -> {
      try (Statement loud = conn.createStatement()) {
        for (int turn = 0; turn < 5; turn++) {
          loud.execute("do $$begin raise notice 'from " + index + "." + turn + "'; end$$");
          same(loud.getWarnings().getMessage(), "from " + index + "." + turn, "notice");
          loud.clearWarnings();
        }
      }
    });
    done("notices", CLIENTS * 5);
  }

  static void changedTypes() throws Exception {
    run(conns[0], "drop table if exists pgjdbc_shape");
    run(conns[0], "create table pgjdbc_shape as select 1 as c1");
    for (int columns = 1; columns < 5; columns++) {
      int wanted = columns;
      onAll((index, conn) -> {
        for (int turn = 0; turn < 8; turn++) {
          try (Statement query = conn.createStatement();
              PreparedStatement prepared = conn.prepareStatement("select * from pgjdbc_shape");
              ResultSet rows = prepared.executeQuery()) {
            same(rows.getMetaData().getColumnCount(), wanted, "columns of a changed shape");
          }
        }
      });
      // On every server of a pool of two: one that never had the statement as it was described runs
      // it as it is then, without the error by which pgjdbc notices.
      for (int index = 0; index < 2; index++) {
        conns[index].setAutoCommit(false);
        one(conns[index], "select * from pgjdbc_shape");
      }
      for (int index = 0; index < 2; index++) {
        conns[index].commit();
        conns[index].setAutoCommit(true);
      }
      run(conns[columns], "alter table pgjdbc_shape add c" + (columns + 1) + " int");
    }
    done("changed result types", CLIENTS * 4);
  }

  static void resets() throws Exception {
    onAll((index, conn) -> {
      for (String reset : List.of("deallocate all", "discard all")) {
        for (int turn = 0; turn < 8; turn++) {
          same(one(conn, "select ?::int + 7", index), index + 7, "before and after " + reset);
        }
        run(conn, reset); // pgjdbc sees the tag and forgets its names
      }
      same(one(conn, "select ?::int + 7", index), index + 7, "after resets");
      same(conn.isValid(5), true, "isValid");
    });
    done("reset by SQL", CLIENTS * 2);
  }

  /** Flyway's lock, taken by replicas that start at once: prepared from the fifth use on. */
  static void migrations() throws Exception {
    String lock = "(77431708279161)";
    AtomicInteger inside = new AtomicInteger();
    onAll((index, conn) -> {
      for (int turn = 0; turn < 8; turn++) {
        while (!(Boolean) one(conn, "SELECT pg_try_advisory_lock" + lock)) {
          Thread.onSpinWait();
        }
        same(inside.incrementAndGet(), 1, "who migrates");
        conn.setAutoCommit(false);
        same(one(conn, "select ?::int", turn), turn, "migration");
        conn.commit();
        conn.setAutoCommit(true);
        inside.decrementAndGet();
        same(one(conn, "SELECT pg_advisory_unlock" + lock), true, "unlock");
      }
    });
    done("advisory locks", CLIENTS * 8);
  }

  static void notifications() throws Exception {
    onAll((index, conn) -> {
      try (Connection listener = connect(index)) {
        run(listener, "listen pgjdbc_" + index);
        for (int turn = 0; turn < 5; turn++) {
          one(conn, "select pg_notify(?, ?)", "pgjdbc_" + index, "" + turn);
          var heard = listener.unwrap(PGConnection.class).getNotifications(0);
          same(heard.length, 1, "notifications at once");
          same(heard[0].getParameter(), "" + turn, "notification");
        }
        run(listener, "unlisten *");
      }
    });
    done("notifications", CLIENTS * 5);
  }

  static void reconnects() throws Exception {
    onAll((index, unused) -> {
      for (int turn = 0; turn < 12; turn++) {
        try (Connection conn = connect(index)) {
          same(one(conn, "select ?::int", turn), turn, "new connection");
          if (turn % 2 == 1) {
            conn.setAutoCommit(false);
            update(conn, "insert into pgjdbc_rows values (-1, ?)", "left behind");
            conn.abort(Runnable::run);
          }
        }
      }
    });
    same(one(conns[0], "select count(*) from pgjdbc_rows where owner = -1"), 0L, "left behind");
    done("reconnects", CLIENTS * 12);
  }

  public static void main(String[] arguments) throws Exception {
    try {
      connects();
      repeats();
      transactions();
      batches();
      portals();
      largeObjects();
      copies();
      cancels();
      large();
      notices();
      changedTypes();
      resets();
      migrations();
      notifications();
      reconnects();
      onAll((index, conn) -> conn.close());
      done("end", 1);
      System.exit(0);
    } catch (Throwable problem) {
      problem.printStackTrace();
      System.exit(1);
    }
  }
}
