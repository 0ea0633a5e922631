# The types of branch_and_bound_loops.py, for the compiler.

from diagmem.planning.place.first_fit_loops cimport Links

cdef long long FAR, NOWHERE

cdef class Sections:
    cdef public long long[::1] first, last, held_from, held, alive_from, alive

cdef class SearchTree:
    cdef public long long[::1] rank, lowest, cause, at, early, weight, members, candidates, blame, crossing, top, trail
    cdef public long long[::1] stack, recent, count, chosen, candidate_count, next_candidate, mark, low, high, part, has_near
    cdef public long long budget, jumps, by_rank, capacity, nodes, trail_length

cdef long long must_be_lifted_to(long long buffer, long long current, Links links, SearchTree tree) noexcept
cdef long long lifted(long long buffer, long long last, Links links, SearchTree tree) noexcept
cdef bint find_earliest(long long row, long long last, Links links, SearchTree tree) noexcept
cdef long long stack_up(long long section, long long last, Links links, Sections sections, SearchTree tree) noexcept
cdef bint overflows(long long section, long long row, long long last, Links links, Sections sections, SearchTree tree) noexcept
cdef void blame_stack(long long begin, long long end, long long row, long long last, SearchTree tree) noexcept
cdef void remember(long long section, SearchTree tree) noexcept
cdef bint recent_overflows(long long row, long long last, Links links, Sections sections, SearchTree tree) noexcept
cdef void sort_members(long long begin, long long end, SearchTree tree) noexcept
cdef long long overflowing(long long row, Sections sections, SearchTree tree) noexcept
cdef long long clear_of_placed(long long buffer, long long offset, Links loose, long long[::1] at) noexcept
cdef void list_candidates(long long row, long long least_end, SearchTree tree) noexcept
cdef void clear_blame(long long row, SearchTree tree) noexcept
cdef long long open_node(long long row, Links links, Sections sections, SearchTree tree) noexcept
cdef void raise_neighbours(long long row, Links links, Links loose, SearchTree tree) noexcept
cdef void count_crossings(long long row, Sections sections, SearchTree tree) noexcept
cdef void blame_passed_over(long long row, SearchTree tree) noexcept
cdef long long choose(long long row, Links links, Links loose, Sections sections, SearchTree tree) noexcept
cdef bint next_part(long long row, Sections sections, SearchTree tree) noexcept
cdef long long take_back(long long row, SearchTree tree) noexcept
cpdef long long search(Links links, Links loose, Sections sections, SearchTree tree) noexcept
