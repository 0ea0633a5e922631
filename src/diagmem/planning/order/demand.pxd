# The types of demand.py, for the compiler.

cdef long long NOBODY, CALLER, TOO_MUCH, PARTS

cdef class FlatRows:
    cdef public long long[::1] turns, makes_rows, sum_bytes, is_whole, make_from, makes, need_from, need_tensor
    cdef public long long[::1] need_turns, first, end, reached, apart_from, apart, row_from, home_from, row_bytes
    cdef public long long[::1] maker, last_use

cdef class Drops:
    cdef public long long[::1] again, at_once

cdef class Room:
    cdef public long long[::1] done, ready, stack_op, stack_turn, stack_own, step_op, step_turn, touched, alive, held
    cdef public long long[::1] dying_apart, dying_bytes
    cdef public long long step_count, top, pushed, needed, look

cdef class Span:
    cdef public long long begin, end, streamed, pushed_before, most_steps

cdef long long new_from(long long need, long long turn, FlatRows rows, Drops drops) noexcept
cdef long long own_rows(long long need, long long turn, FlatRows rows, Drops drops) noexcept
cdef long long own_row(long long need, long long turn, long long number, FlatRows rows, Drops drops) noexcept
cdef long long missing(long long op, long long turn, long long begin, long long last, FlatRows rows, Drops drops, Room room) noexcept
cdef void ask(long long op, long long turn, Room room) noexcept
cdef void ask_next(long long op, FlatRows rows, Drops drops, Room room) noexcept
cdef void run(long long op, long long turn, FlatRows rows, Room room) noexcept
cdef void make(long long op, long long begin, long long last, long long most, FlatRows rows, Drops drops, Room room) noexcept
cdef long long on_demand(long long last, Span span, FlatRows rows, Drops drops, Room room) noexcept
cdef void touch(long long tensor, long long low, long long high, FlatRows rows, Room room) noexcept
cdef long long hold(long long tensor, long long row, FlatRows rows, Room room) noexcept
cdef long long leave(long long tensor, long long row, FlatRows rows, Room room) noexcept
cdef long long covered(long long size, long long count, Room room) noexcept
cdef long long made_row(long long tensor, long long row, FlatRows rows, Room room) noexcept
cdef long long leave_step(long long at, long long live, long long streamed, FlatRows rows, Room room) noexcept
cdef long long touch_all(Span span, FlatRows rows, Room room) noexcept
cdef long long peak(Span span, FlatRows rows, Room room) noexcept
cdef long long least_peak(Span span, FlatRows rows, Drops drops, Room room) noexcept
