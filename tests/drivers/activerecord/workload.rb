# frozen_string_literal: true

# ActiveRecord on its own pool of connections: migrations under its advisory lock, prepared statements
# and their limit, transactions, resets of connections; and what GoodJob does by its connections: LISTEN,
# NOTIFY, and jobs taken by advisory locks.
#
# The server is told by PGHOST, PGPORT, PGUSER, PGPASSWORD and PGDATABASE. Prints what each thread got,
# in lines that are the same in each run on a new database.

require 'active_record'
require 'pg'

THREADS = 4
JOBS = 40
ActiveRecord::Base.default_timezone = :utc
ActiveRecord::Migration.verbose = false
ActiveRecord::Migrator.migrations_paths = ['migrate']
ActiveRecord::Base.establish_connection(
  adapter: 'postgresql', encoding: 'unicode', pool: 3 * THREADS, statement_limit: 12,
  host: ENV.fetch('PGHOST'), port: ENV.fetch('PGPORT'), username: ENV.fetch('PGUSER'),
  password: ENV.fetch('PGPASSWORD'), database: ENV.fetch('PGDATABASE'), min_messages: 'error',
  schema_search_path: 'app, public', variables: { statement_timeout: '55s' }
)

class Person < ActiveRecord::Base
  attribute :worked, :interval
end

class Job < ActiveRecord::Base; end

STATE = %w[client_min_messages standard_conforming_strings timezone intervalstyle statement_timeout
           search_path client_encoding role work_mem lock_timeout transaction_isolation
           transaction_read_only application_name].freeze

def base
  ActiveRecord::Base.connection
end

# The settings of this thread's connection.
def state
  base.select_rows("SELECT #{STATE.map { |name| "current_setting('#{name}')" }.join(', ')}, " \
                   "current_user, to_regclass('pg_temp.numbers')::text").first
end

# A parameter of a statement.
def bound(value, type)
  ActiveRecord::Relation::QueryAttribute.new('parameter', value, type.new)
end

# Runs what must fail, and gives the words.
def refused(*problems)
  yield
  'not refused'
rescue *problems => e
  "#{e.class}: #{(e.cause || e).message.lines.first.strip}"
end

# Runs a block in all threads at once, and prints what each gives.
def on_all(behaviour)
  threads = Array.new(THREADS) do |index|
    Thread.new do
      Thread.current.report_on_exception = false
      Thread.current.abort_on_exception = true
      ActiveRecord::Base.connection_pool.with_connection { yield index }
    end
  end
  threads.map(&:value).each_with_index do |answers, index|
    answers.each { |answer| puts "#{behaviour} #{index} #{answer.inspect}" }
  end
end

# Waits until another thread has migrated.
def once_alone
  yield
rescue ActiveRecord::ConcurrentMigrationError => e
  # The lock was lost meanwhile.
  raise if e.message.include?(ActiveRecord::ConcurrentMigrationError::RELEASE_LOCK_FAILED_MESSAGE)

  Thread.pass
  retry
end

# All threads migrate at once: one does, the others are told to give up, and try again.
def migrations
  # The adapter makes these without its lock.
  base.schema_migration.create_table
  ActiveRecord::InternalMetadata.create_table
  on_all('migrations') do
    once_alone { base.migration_context.migrate(3) }
    [base.migration_context.current_version, base.migration_context.needs_migration?]
  end
  puts refused(StandardError) { base.migration_context.migrate }
  puts base.migration_context.get_all_versions.inspect, base.tables.sort.inspect
  columns = base.columns('people')
  puts columns.map { |column| [column.name, column.sql_type, column.null, column.default] }.inspect
  puts base.indexes('people').map { |index| [index.name, index.columns, index.unique] }.sort.inspect
  puts base.select_rows("SELECT name, note FROM people ORDER BY id").inspect
  base.migration_context.rollback
  puts base.columns('people').map(&:name).inspect
  base.migration_context.migrate(3)
  [Person, Job].each(&:reset_column_information)
  puts Person.column_names.inspect
end

# What the adapter has set when it connected.
def settings
  on_all('settings') { Array.new(8) { state } }
end

# Texts prepared by the adapter, more than it keeps, so that it deallocates some.
def statements
  on_all('statements') do |index|
    Array.new(3) do |turn|
      Array.new(20) do |number|
        binds = [bound(turn, ActiveRecord::Type::Integer),
                 bound("#{index}.#{turn}", ActiveRecord::Type::Text)]
        base.exec_query("SELECT $1::int * #{number}, $2::text", 'Numbers', binds, prepare: true).rows
      end
    end
  end
end

# Rows made, found, changed, counted and deleted.
def records
  on_all('records') do |index|
    mine = Person.where(owner: index)
    made = Array.new(24) do |number|
      mine.create!(name: format('n%02d', number), balance: number / 4.0, worked: number.minutes,
                   words: [number.to_s, "it's", nil])
    end
    answers = [made.map(&:worked), mine.sum(:balance), mine.order(:name).pluck(:words).last]
    4.times do |turn|
      found = mine.find_by(name: 'n07')
      found.update!(balance: found.balance + turn, note: "turn #{turn}")
      answers << [found.lock_version, mine.find_by!(name: 'n07').note]
      rich = mine.where('balance > ?', turn / 2.0)
      answers << rich.where(name: %w[n01 n05 n09 n11]).order(:name).pluck(:name, :balance)
      answers << Person.upsert_all(
        [{ owner: index, name: "upserted #{turn % 2}", balance: turn, created_at: '2026-01-01',
           updated_at: '2026-01-01' }],
        unique_by: %i[owner name], returning: %w[owner name]
      ).rows
      answers << refused(ActiveRecord::RecordNotUnique) { mine.create!(name: 'n03') }
      answers << refused(ActiveRecord::RecordNotFound) { mine.find_by!(name: "nobody #{turn}") }
    end
    stale = mine.find_by(name: 'n01')
    mine.find_by(name: 'n01').update!(note: 'first')
    answers << refused(ActiveRecord::StaleObjectError) { stale.update!(note: 'second') }
    batches = []
    mine.find_in_batches(batch_size: 7) { |batch| batches << batch.map(&:name) }
    answers << batches
    answers << mine.where(name: %w[n22 n23]).delete_all << mine.group(:note).order(:note).count
  end
end

# Transactions within transactions, their errors and rows locked.
def transactions
  on_all('transactions') do |index|
    mine = Person.where(owner: index)
    Array.new(5) do |turn|
      answers = []
      Person.transaction(isolation: turn.even? ? :repeatable_read : nil) do
        mine.lock('FOR UPDATE').find_by!(name: 'n02').update!(note: "turn #{turn}")
        answers << state
        Person.transaction(requires_new: true) do
          mine.create!(name: "undone #{turn}")
          base.execute("SET work_mem = '9MB'")
          raise ActiveRecord::Rollback
        end
        answers << refused(ActiveRecord::RecordNotUnique) do
          Person.transaction(requires_new: true) { mine.create!(name: 'n03') }
        end
        mine.create!(name: "kept #{turn}")
        base.execute("SET LOCAL lock_timeout = '#{turn + 1}s'")
        answers << state
      end
      Person.transaction do
        mine.delete_all
        answers << refused(ActiveRecord::StatementInvalid) { base.execute('SELECT nonsense') }
        answers << refused(ActiveRecord::StatementInvalid) { mine.count }
        raise ActiveRecord::Rollback
      end
      mine.find_by(name: 'n04').with_lock do
        answers << mine.where("name LIKE 'kept%' OR name LIKE 'undone%'").order(:name).pluck(:name)
      end
      answers << state
    end
  end
end

# A connection reset as the adapter does: DISCARD ALL, and its settings once more.
def resets
  on_all('resets') do |index|
    Array.new(4) do |turn|
      base.execute("SET work_mem = '#{index + turn + 1}MB'")
      base.execute("SET timezone = 'Asia/Tokyo'")
      base.execute('CREATE TEMP TABLE numbers (number int)') if turn.odd?
      answers = [state]
      base.begin_db_transaction if turn == 2
      base.reset!
      answers << state << Person.where(owner: index).find_by(name: 'n05').name << base.active?
      base.verify!
      base.reconnect! if turn == 3
      answers << state << Person.where(owner: index).find_by(name: 'n05').name
    end
  end
end

# A table changes under a prepared statement: the adapter prepares it again.
def changed_tables
  on_all('before') do |index|
    Array.new(6) { Person.where(owner: index).find_by(name: 'n06').attributes.length }
  end
  base.add_column(:people, :later, :integer, default: 7)
  on_all('changed') do |index|
    all = "SELECT * FROM people WHERE owner = #{index} AND name = 'n06'"
    Array.new(6) { base.select_all(all).first['later'] } +
      Array.new(6) { Person.where(owner: index).find_by(name: 'n06')['later'] }
  end
end

# GoodJob's notifier: LISTEN by the adapter, and waiting by the driver's connection.
def notifications
  heard = Queue.new
  ready = Queue.new
  listener = Thread.new do
    ActiveRecord::Base.connection_pool.with_connection do |connection|
      connection.execute('LISTEN good_job')
      ready << true
      until heard.size == 4 * THREADS + 1
        connection.raw_connection.wait_for_notify(1) do |channel, _, payload|
          heard << [channel, JSON.parse(payload)]
        end
      end
      connection.execute('UNLISTEN *')
    end
  end
  ready.pop
  on_all('notifies') do |index|
    Array.new(4) do |turn|
      payload = base.quote({ queue_name: "#{index}.#{turn}" }.to_json)
      Person.transaction do
        base.exec_query("NOTIFY good_job, #{payload}")
        raise ActiveRecord::Rollback if turn == 3
      end
      base.exec_query("NOTIFY good_job, #{payload}").rows if turn == 3
    end
  end
  base.execute("NOTIFY good_job, '{\"last\": true}'")
  listener.join
  notes = Array.new(heard.size) { heard.pop }
  puts "notified #{notes.last.inspect}", notes.sort_by(&:to_s).map { |note| "notified #{note.inspect}" }
end

PICK = <<~SQL
  WITH rows AS MATERIALIZED (
    SELECT id FROM jobs WHERE finished_at IS NULL ORDER BY number LIMIT $1
  )
  SELECT jobs.* FROM jobs WHERE id IN (
    SELECT rows.id FROM rows
    WHERE pg_try_advisory_lock(('x' || substr(md5('jobs' || '-' || rows.id::text), 1, 16))::bit(64)::bigint)
    LIMIT 1)
SQL
UNLOCK = "SELECT pg_advisory_unlock(('x' || substr(md5($1::text), 1, 16))::bit(64)::bigint) AS unlocked"
OWN = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()"

# Takes a job as GoodJob does, has a block perform it, and gives the lock back.
def perform
  job = Job.find_by_sql(PICK, [bound(16, ActiveRecord::Type::Integer)], preparable: true).first or return
  begin
    # Another thread may have ended it between the look at the table and the lock.
    yield job if Job.where(id: job.id, finished_at: nil).exists?
  ensure
    key = bound("jobs-#{job.id}", ActiveRecord::Type::String)
    unlocked = base.exec_query(UNLOCK, 'Unlock', [key], prepare: true).rows
    raise "not unlocked: #{unlocked}" unless unlocked == [[true]]
  end
  true
end

# All threads work on one queue. Each job is performed once, by a thread that has its lock.
def jobs
  Job.insert_all(Array.new(JOBS) do |number|
    { number: number, queue_name: 'default', serialized_params: { number: number },
      created_at: '2026-01-01', updated_at: '2026-01-01' }
  end)
  performed = Queue.new
  on_all('jobs') do
    while Job.where(finished_at: nil).exists?
      perform do |job|
        raise 'not locked' unless base.select_value(OWN) == 1

        Job.transaction do
          performed << [job.number, job.serialized_params]
          job.update!(finished_at: Time.now.utc)
        end
      end
    end
    [base.select_value(OWN)]
  end
  puts "performed #{Array.new(performed.size) { performed.pop }.sort_by(&:first).inspect}"
end

begin
  migrations
  settings
  statements
  records
  transactions
  resets
  changed_tables
  notifications
  jobs
  settings
  puts 'end 1'
rescue StandardError => e
  own = e.backtrace.grep(/^workload/).join(', ')
  abort "ActiveRecord #{ActiveRecord.version}: #{e.class}: #{e.message} (#{own})"
end
