# The types of first_fit_loops.py, for the compiler.

cdef long long NOWHERE, FAR, LEHMER, PRIME, HALVED_AFTER, MOST_PLACES
cdef bint IS_COMPILED

cdef class Links:
    cdef public long long[::1] size, align, near_from, near, below, above

cdef class FirstFitState:
    cdef public long long[::1] at, place_of, is_stale, low, high
    cdef public long long chance, fits

cdef class ConflictState:
    cdef public long long[::1] at, is_queued, is_stuck, queue, stuck, weight, turned, low, high, heavy
    cdef public long long depth_cost, pair_cost, chance, queue_count, stuck_count, moves, raised

cdef long long lowest_fit(long long buffer, Links links, FirstFitState fit) noexcept
cdef void mark_stale(long long buffer, long long begin, Links links, FirstFitState fit) noexcept
cpdef long long fit_in_order(long long[::1] order, long long begin, long long limit, Links links, FirstFitState fit) noexcept
cpdef bint squeaky_wheel(long long[::1] order, long long limit, long long rounds, long long most_fits, Links links, FirstFitState fit) noexcept
cpdef long long core(long long limit, long long unit, Links links, long long[::1] is_left, long long[::1] removed) noexcept
cdef long long next_chance(ConflictState state, long long count) noexcept
cdef long long list_conflicts(long long buffer, long long top, Links links, ConflictState state) noexcept
cdef long long cost_at(long long offset, long long count, long long most, ConflictState state) noexcept
cdef long long cheapest_place(long long offset, long long top, long long align, long long count, ConflictState state) noexcept
cdef void enqueue(long long buffer, ConflictState state) noexcept
cdef void move(long long buffer, long long limit, Links links, ConflictState state) noexcept
cdef long long raise_weights(Links links, ConflictState state) noexcept
cpdef bint min_conflicts(long long limit, long long most_moves, Links links, ConflictState state) noexcept
