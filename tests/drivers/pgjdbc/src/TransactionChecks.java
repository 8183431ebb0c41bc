import java.sql.BatchUpdateException;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Savepoint;
import java.sql.Statement;
import java.util.Arrays;
import java.util.concurrent.CountDownLatch;
import org.postgresql.util.PSQLException;

/** Transactions, savepoints, errors, batches, notices, cancel. */
final class TransactionChecks {
  private TransactionChecks() {}

  static void register() {
    Frame.check("commit_rollback", TransactionChecks::commitRollback);
    Frame.check("savepoints", TransactionChecks::savepoints);
    Frame.check("autosave", TransactionChecks::autosave);
    Frame.check("errors", TransactionChecks::errors);
    Frame.check("left_in_transaction", TransactionChecks::leftInTransaction);
    Frame.check("batch", TransactionChecks::batch);
    Frame.check("batch_error", TransactionChecks::batchError);
    Frame.check("notices", TransactionChecks::notices);
    Frame.check("is_valid_and_session_commands", TransactionChecks::isValid);
    Frame.check("cancel_only_that_query", TransactionChecks::cancel);
    Frame.check("query_timeout", TransactionChecks::queryTimeout);
  }

  private static void commitRollback() throws Exception {
    Connection one = Frame.connect();
    Connection two = Frame.connect();
    Frame.exec(two, "drop table if exists drv_pgjdbc_tx", "create table drv_pgjdbc_tx (id int primary key)");
    one.setAutoCommit(false);
    Frame.exec(one, "insert into drv_pgjdbc_tx values (1)");
    Frame.same("0", Frame.value(two, "select count(*) from drv_pgjdbc_tx"));
    one.commit();
    Frame.same("1", Frame.value(two, "select count(*) from drv_pgjdbc_tx"));
    Frame.exec(one, "delete from drv_pgjdbc_tx");
    one.rollback();
    Frame.same("1", Frame.value(two, "select count(*) from drv_pgjdbc_tx"));
    Frame.exec(two, "drop table drv_pgjdbc_tx");
  }

  private static void savepoints() throws Exception {
    Connection connection = Frame.connect("prepareThreshold=1");
    Frame.exec(connection, "drop table if exists drv_pgjdbc_sp", "create table drv_pgjdbc_sp (id int primary key)");
    connection.setAutoCommit(false);
    try (PreparedStatement put = connection.prepareStatement("insert into drv_pgjdbc_sp values (?)")) {
      put.setInt(1, 1);
      put.executeUpdate();
      Savepoint point = connection.setSavepoint("here");
      Frame.fails("23505", put::executeUpdate);
      Frame.fails("25P02", put::executeUpdate);
      connection.rollback(point);
      put.setInt(1, 3);
      put.executeUpdate();
      connection.releaseSavepoint(point);
    }
    connection.commit();
    connection.setAutoCommit(true);
    Frame.same("1,3", Frame.value(connection, "select string_agg(id::text, ',' order by id) from drv_pgjdbc_sp"));
    Frame.exec(connection, "drop table drv_pgjdbc_sp");
  }

  private static void autosave() throws Exception {
    // The driver puts a savepoint before each statement and goes back to it after an error.
    Connection connection = Frame.connect("autosave=always", "prepareThreshold=1");
    connection.setAutoCommit(false);
    for (int n = 0; n < 10; n++) {
      Frame.same(String.valueOf(n), Frame.value(connection, "select ?::int", n));
      Frame.fails("22012", () -> Frame.value(connection, "select 1 / ?::int", 0));
    }
    connection.commit();
  }

  private static void errors() throws Exception {
    Connection connection = Frame.connect("prepareThreshold=1");
    Frame.fails("42601", () -> Frame.exec(connection, "selec 1"));
    Frame.fails("42P01", () -> Frame.value(connection, "select * from drv_pgjdbc_no_such where id = ?", 1));
    Frame.fails("22012", () -> Frame.value(connection, "select 1 / ?::int", 0));
    Frame.same("1", Frame.value(connection, "select 1 / ?::int", 1));
    Frame.exec(connection, "drop table if exists drv_pgjdbc_err",
        "create table drv_pgjdbc_err (id int constraint drv_pgjdbc_positive check (id > 0))");
    SQLException error = Frame.fails("23514", () -> Frame.exec(connection, "insert into drv_pgjdbc_err values (-1)"));
    Frame.same("drv_pgjdbc_positive", ((PSQLException) error).getServerErrorMessage().getConstraint());
    connection.setAutoCommit(false);
    Frame.fails("22012", () -> Frame.value(connection, "select 1 / ?::int", 0));
    Frame.fails("25P02", () -> Frame.value(connection, "select 1 / ?::int", 1));
    connection.rollback();
    Frame.same("1", Frame.value(connection, "select 1 / ?::int", 1));
    connection.rollback();
    connection.setAutoCommit(true);
    // Several statements in one string go as one pipeline.
    Frame.fails("22012", () -> Frame.exec(connection, "select 1; select 1/0; select 3"));
    try (Statement statement = connection.createStatement()) {
      statement.execute("select 1; select 2");
      Frame.same(true, statement.getMoreResults());
      statement.getResultSet().next();
      Frame.same(2, statement.getResultSet().getInt(1));
    }
    Frame.exec(connection, "", "drop table drv_pgjdbc_err");
  }

  private static void leftInTransaction() throws Exception {
    Connection keeper = Frame.connect();
    Frame.exec(keeper, "drop table if exists drv_pgjdbc_left", "create table drv_pgjdbc_left (id int)");
    for (int turn = 0; turn < 8; turn++) {
      Connection connection = Frame.connect();
      connection.setAutoCommit(false);
      Frame.exec(connection, "insert into drv_pgjdbc_left values (1)", "lock table drv_pgjdbc_left");
      if (turn % 2 == 0) {
        connection.close();
      } else {
        connection.abort(Runnable::run);
      }
    }
    keeper.setAutoCommit(false);
    Frame.exec(keeper, "set local lock_timeout = '5s'", "lock table drv_pgjdbc_left");
    Frame.same("0", Frame.value(keeper, "select count(*) from drv_pgjdbc_left"));
    keeper.commit();
    keeper.setAutoCommit(true);
    Frame.exec(keeper, "drop table drv_pgjdbc_left");
  }

  private static void batch() throws Exception {
    Connection first = Frame.connect();
    Frame.exec(first, "drop table if exists drv_pgjdbc_batch", "create table drv_pgjdbc_batch (client int, id int, v text)");
    Frame.inParallel(StatementChecks.CLIENTS, number -> {
      for (String rewrite : new String[] {"false", "true"}) {
        Connection connection = Frame.connect("reWriteBatchedInserts=" + rewrite, "prepareThreshold=1");
        connection.setAutoCommit(number % 2 == 0);
        try (PreparedStatement put = connection.prepareStatement("insert into drv_pgjdbc_batch values (?, ?, ?)")) {
          for (int n = 0; n < 200; n++) {
            put.setInt(1, number);
            put.setInt(2, n);
            put.setString(3, "value " + n);
            put.addBatch();
          }
          Frame.same(200, put.executeBatch().length);
        }
        if (number % 2 != 0) {
          connection.commit();
        }
      }
    });
    Frame.same("12000", Frame.value(first, "select count(*) from drv_pgjdbc_batch"));
    Frame.same("400", Frame.value(first, "select max(n) from (select count(*) n from drv_pgjdbc_batch group by client) x"));
    // Statements of several texts in one batch, and generated keys.
    try (Statement statement = first.createStatement()) {
      statement.addBatch("insert into drv_pgjdbc_batch values (100, 1, 'x')");
      statement.addBatch("update drv_pgjdbc_batch set v = 'y' where client = 100");
      statement.addBatch("delete from drv_pgjdbc_batch where client = 100");
      Frame.same("[1, 1, 1]", Arrays.toString(statement.executeBatch()));
      statement.execute("insert into drv_pgjdbc_batch values (101, 7, 'x')", new String[] {"id"});
      try (ResultSet keys = statement.getGeneratedKeys()) {
        keys.next();
        Frame.same(7, keys.getInt(1));
      }
    }
    Frame.exec(first, "drop table drv_pgjdbc_batch");
  }

  private static void batchError() throws Exception {
    Connection connection = Frame.connect("prepareThreshold=1");
    Frame.exec(connection, "drop table if exists drv_pgjdbc_batch2", "create table drv_pgjdbc_batch2 (id int primary key)");
    connection.setAutoCommit(false);
    try (PreparedStatement put = connection.prepareStatement("insert into drv_pgjdbc_batch2 values (?)")) {
      for (int n = 0; n < 1000; n++) {
        put.setInt(1, n == 700 ? 1 : n);
        put.addBatch();
      }
      try {
        put.executeBatch();
        throw new AssertionError("no error");
      } catch (BatchUpdateException e) {
        Frame.same("23505", e.getSQLState());
      }
      connection.rollback();
      Frame.same("0", Frame.value(connection, "select count(*) from drv_pgjdbc_batch2"));
      put.setInt(1, 5);
      put.addBatch();
      put.executeBatch();
      connection.commit();
    }
    connection.setAutoCommit(true);
    Frame.same("1", Frame.value(connection, "select count(*) from drv_pgjdbc_batch2"));
    Frame.exec(connection, "drop table drv_pgjdbc_batch2");
  }

  private static void notices() throws Exception {
    Connection connection = Frame.connect();
    Connection other = Frame.connect();
    try (Statement statement = connection.createStatement(); Statement quiet = other.createStatement()) {
      statement.execute("do $$ begin for i in 1..50 loop raise notice 'note %', i; end loop; end $$");
      quiet.execute("select 1");
      int count = 0;
      String last = null;
      for (var warning = statement.getWarnings(); warning != null; warning = warning.getNextWarning()) {
        count++;
        last = warning.getMessage();
      }
      Frame.same("50 note 50", count + " " + last);
      Frame.same(true, quiet.getWarnings() == null);
    }
  }

  private static void isValid() throws Exception {
    Connection connection = Frame.connect();
    for (int n = 0; n < 5; n++) {
      Frame.same(true, connection.isValid(5));
    }
    // Read-only and isolation hold for transactions that the driver begins.
    connection.setAutoCommit(false);
    connection.setReadOnly(true);
    Frame.fails("25006", () -> Frame.exec(connection, "create table drv_pgjdbc_never (id int)"));
    connection.rollback();
    connection.setReadOnly(false);
    Frame.same("off", Frame.value(connection, "select current_setting('transaction_read_only')"));
    connection.rollback();
  }

  private static void cancel() throws Exception {
    Connection target = Frame.connect();
    CountDownLatch sleeping = new CountDownLatch(3);
    Thread others = new Thread(() -> {
      try {
        Frame.inParallel(3, number -> {
          Connection connection = Frame.connect();
          sleeping.countDown();
          Frame.same("slept", Frame.value(connection, "select 'slept' from pg_sleep(0.8)"));
        });
        slept = null;
      } catch (Exception e) {
        slept = e;
      }
    });
    slept = new AssertionError("never ended");
    others.start();
    sleeping.await();
    try (PreparedStatement sleep = target.prepareStatement("select pg_sleep(?)")) {
      sleep.setInt(1, 20);
      for (int turn = 0; turn < 2; turn++) {
        boolean[] done = {false};
        Thread canceller = new Thread(() -> {
          // One that comes before the query has begun is lost by right.
          while (!done[0]) {
            try {
              Thread.sleep(150);
              sleep.cancel();
            } catch (Exception e) {
              return;
            }
          }
        });
        canceller.start();
        Frame.fails("57014", sleep::executeQuery);
        done[0] = true;
        canceller.join();
        Thread.sleep(30);
        Frame.same("usable", Frame.value(target, "select 'usable'"));
      }
    }
    others.join();
    if (slept != null) {
      throw new AssertionError("another query was hit", slept);
    }
  }

  private static volatile Throwable slept;

  private static void queryTimeout() throws Exception {
    Connection connection = Frame.connect();
    connection.setAutoCommit(false);
    try (Statement statement = connection.createStatement()) {
      statement.setQueryTimeout(1);
      Frame.fails("57014", () -> statement.execute("select pg_sleep(20)"));
      Frame.fails("25P02", () -> statement.execute("select 1"));
      connection.rollback();
      statement.execute("select 1");
      connection.commit();
    }
  }
}
