/**
 * pgjdbc by its ordinary API. It parses without a name until a PreparedStatement has run five times, then under names
 * of its own (S_1, S_2, ...), the same ones in each connection.
 */
public final class Checks {
  private Checks() {}

  /** Runs all checks, or the one that is named. */
  public static void main(String[] arguments) {
    StatementChecks.register();
    TransactionChecks.register();
    TransferChecks.register();
    System.exit(Frame.runAll(arguments.length > 0 ? arguments[0] : null) == 0 ? 0 : 1);
  }
}
