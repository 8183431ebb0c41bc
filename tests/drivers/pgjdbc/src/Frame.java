import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;

/** How a check is named, run and reported, and short forms of the JDBC calls that all checks make. */
final class Frame {
  /** A check that hangs must fail under its own name, before the harness gives up on the whole program. */
  private static final int CHECK_SECONDS_MAX = 120;

  interface Check {
    void run() throws Exception;
  }

  interface SqlAction {
    void run() throws SQLException;
  }

  interface Task {
    void run(int number) throws Exception;
  }

  private static final Map<String, Check> CHECKS = new LinkedHashMap<>();
  private static final List<Connection> OPENED = new ArrayList<>();

  private Frame() {}

  static void check(String name, Check check) {
    CHECKS.put(name, check);
  }

  static int runAll(String only) {
    ExecutorService runner = Executors.newCachedThreadPool(Frame::daemon);
    int failed = 0;
    for (Map.Entry<String, Check> entry : CHECKS.entrySet()) {
      if (only != null && !only.equals(entry.getKey())) {
        continue;
      }
      long began = System.nanoTime();
      Throwable problem = null;
      Future<?> future = runner.submit((Callable<Void>) () -> {
        entry.getValue().run();
        return null;
      });
      try {
        future.get(CHECK_SECONDS_MAX, TimeUnit.SECONDS);
      } catch (ExecutionException e) {
        problem = e.getCause();
      } catch (Exception e) {
        problem = e;
      }
      closeAll();
      if (problem == null) {
        System.out.println("ok " + entry.getKey());
      } else {
        failed++;
        System.out.println(("not ok " + entry.getKey() + ": " + problem + at(problem)).replace('\n', ' '));
      }
      if (System.getenv("DRIVERS_TIMES") != null) {
        System.err.printf("# %s %d ms%n", entry.getKey(), (System.nanoTime() - began) / 1_000_000);
      }
    }
    return failed;
  }

  private static Thread daemon(Runnable work) {
    Thread thread = new Thread(work);
    thread.setDaemon(true);
    return thread;
  }

  private static String at(Throwable problem) {
    for (StackTraceElement line : problem.getStackTrace()) {
      if (line.getClassName().startsWith("Checks") || line.getClassName().endsWith("Checks")) {
        return " at " + line;
      }
    }
    return "";
  }

  /** A connection to the server of the PG* environment, with driver properties as "name=value". */
  static Connection connect(String... options) throws SQLException {
    Map<String, String> env = System.getenv();
    Properties properties = new Properties();
    properties.setProperty("user", env.get("PGUSER"));
    properties.setProperty("password", env.get("PGPASSWORD"));
    properties.setProperty("ApplicationName", "drv_pgjdbc");
    properties.setProperty("loginTimeout", "60");
    for (String[] tls : new String[][] {{"PGSSLMODE", "sslmode"}, {"PGSSLROOTCERT", "sslrootcert"}}) {
      if (env.get(tls[0]) != null) {
        properties.setProperty(tls[1], env.get(tls[0]));
      }
    }
    for (String option : options) {
      properties.setProperty(option.substring(0, option.indexOf('=')), option.substring(option.indexOf('=') + 1));
    }
    String url = "jdbc:postgresql://" + env.get("PGHOST") + ":" + env.get("PGPORT") + "/" + env.get("PGDATABASE");
    Connection connection = DriverManager.getConnection(url, properties);
    synchronized (OPENED) {
      OPENED.add(connection);
    }
    return connection;
  }

  private static void closeAll() {
    synchronized (OPENED) {
      for (Connection connection : OPENED) {
        try {
          connection.close();
        } catch (SQLException ignored) {
          // The check has its own verdict.
        }
      }
      OPENED.clear();
    }
  }

  static void same(Object expected, Object got) {
    if (!expected.equals(got)) {
      throw new AssertionError("wanted " + brief(expected) + ", got " + brief(got));
    }
  }

  private static String brief(Object value) {
    String text = String.valueOf(value);
    return text.length() > 200 ? text.substring(0, 200) : text;
  }

  static SQLException fails(String state, SqlAction action) throws SQLException {
    try {
      action.run();
    } catch (SQLException e) {
      if (!state.equals(e.getSQLState())) {
        throw e;
      }
      return e;
    }
    throw new AssertionError("no error, wanted " + state);
  }

  static void exec(Connection connection, String... statements) throws SQLException {
    try (Statement statement = connection.createStatement()) {
      for (String sql : statements) {
        statement.execute(sql);
      }
    }
  }

  /** The single value that a statement gives, as text; it is prepared anew by the caller's view each time. */
  static String value(Connection connection, String sql, Object... arguments) throws SQLException {
    try (PreparedStatement statement = connection.prepareStatement(sql)) {
      for (int i = 0; i < arguments.length; i++) {
        statement.setObject(i + 1, arguments[i]);
      }
      return value(statement);
    }
  }

  static String value(PreparedStatement statement) throws SQLException {
    try (ResultSet rows = statement.executeQuery()) {
      if (!rows.next()) {
        throw new AssertionError("no row");
      }
      String got = rows.getString(1);
      if (rows.next()) {
        throw new AssertionError("a row too many");
      }
      return got;
    }
  }

  static void inParallel(int count, Task task) throws Exception {
    ExecutorService threads = Executors.newFixedThreadPool(count, Frame::daemon);
    List<Future<Void>> results = new ArrayList<>();
    for (int i = 0; i < count; i++) {
      int number = i;
      results.add(threads.submit((Callable<Void>) () -> {
        task.run(number);
        return null;
      }));
    }
    threads.shutdown();
    for (Future<Void> result : results) {
      try {
        result.get();
      } catch (ExecutionException e) {
        if (e.getCause() instanceof Exception cause) {
          throw cause;
        }
        throw new AssertionError(e.getCause());
      }
    }
  }
}
