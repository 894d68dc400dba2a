# frozen_string_literal: true

# An index made beside the table's use, which is possible outside of a transaction only.
class IndexPeople < ActiveRecord::Migration[6.1]
  disable_ddl_transaction!

  def change
    add_index :people, :balance, algorithm: :concurrently
  end
end
