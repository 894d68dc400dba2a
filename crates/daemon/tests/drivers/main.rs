//! The connection layer over each driver for the kernel: one suite for all of them.

mod ending;
mod sending;
mod stage;
mod waiting;

use howdah_daemon::driver::epoll::Epoll;
use howdah_daemon::driver::uring::Uring;

macro_rules! suite {
    ($($room:ident: $($name:ident)*;)*) => {
        mod on_epoll { $($(#[test] fn $name() { crate::$room::$name::<super::Epoll>(); })*)* }
        mod on_uring { $($(#[test] fn $name() { crate::$room::$name::<super::Uring>(); })*)* }
    };
}

suite! {
    sending:
        echoes_of_all_sizes
        a_slow_reader_bounds_memory
        stopping_and_starting_loses_nothing
        a_socket_moves_between_workers_with_data_under_way
        more_connections_than_buffers
        one_event_sends_to_hundreds
        small_kernel_buffers_lose_nothing
    ;
    ending:
        flush_delivers_everything
        abort_closes_at_once
        parting_awaits_no_end_of_the_stream
        parting_with_the_end_of_the_stream_at_hand
        await_waits_for_the_end_of_the_stream
        end_of_file_and_reset_are_told_apart
        a_hang_up_is_found_while_receiving_is_off
        a_refused_connect_is_told_once
        last_words_survive_a_failed_send
        closing_while_everything_is_under_way
        who_connects_after_the_end_is_refused_at_once
    ;
    waiting:
        mail_wakes_a_waiting_worker
        deadlines_that_move_are_kept
        an_idle_worker_does_not_spin
        who_stands_still_keeps_nobody_from_accepting
        the_end_of_a_listener_is_no_error
    ;
}
