# frozen_string_literal: true

# Rows, and a setting for this transaction.
class FillPeople < ActiveRecord::Migration[6.1]
  def up
    execute "SET LOCAL lock_timeout = '5s'"
    add_column :people, :note, :text
    execute "INSERT INTO people (owner, name, note, created_at, updated_at) " \
            "SELECT 99, 'filled ' || i, current_setting('lock_timeout'), '2026-01-01', '2026-01-01' " \
            'FROM generate_series(1, 3) i'
  end

  def down
    execute 'DELETE FROM people WHERE owner = 99'
    remove_column :people, :note
  end
end
