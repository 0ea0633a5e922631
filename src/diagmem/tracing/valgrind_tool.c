/* A valgrind tool that records loads and stores in watched buffers while an operation runs.
 *
 * The traced program names its buffers and marks operations with the requests of valgrind_marks.h. Records go to the
 * file descriptor given with --events-fd. Time is the count of instructions since the trace began. */
#include "pub_tool_basics.h"
#include "pub_tool_libcassert.h"
#include "pub_tool_libcbase.h"
#include "pub_tool_libcfile.h"
#include "pub_tool_libcprint.h"
#include "pub_tool_libcproc.h"
#include "pub_tool_machine.h"
#include "pub_tool_options.h"
#include "pub_tool_tooliface.h"

#include "valgrind_marks.h"

enum { LOAD, STORE, START, END };

/* The record that tracing/recording.py reads. */
typedef struct {
    ULong time;
    UInt offset;
    UShort bytes;
    UShort kind;
} Event;

typedef struct {
    Addr begin;
    Addr end;
    UInt offset; /* of its first byte in the traced space */
} Watched;

enum { MAX_WATCHED = 256, BUFFERED = 1 << 15 };

static Watched watched[MAX_WATCHED];
static Int watched_count = 0;
static Addr lowest = ~(Addr)0, highest = 0;
static UInt space_bytes = 0;

static Event buffered[BUFFERED];
static Int buffered_count = 0;
static Int events_fd = -1;

static ULong now = 0; /* instructions */
static Bool recording = False;

static void flush(void) {
    const HChar *next = (const HChar *)buffered;
    Int left = buffered_count * (Int)sizeof(Event);
    while (left > 0) {
        Int done = VG_(write)(events_fd, next, left);
        if (done <= 0) {
            VG_(umsg)("cannot write events\n");
            VG_(exit)(3);
        }
        next += done;
        left -= done;
    }
    buffered_count = 0;
}

static void record(UInt offset, UShort bytes, UShort kind) {
    Event *event = &buffered[buffered_count];
    event->time = now;
    event->offset = offset;
    event->bytes = bytes;
    event->kind = kind;
    if (++buffered_count == BUFFERED) flush();
}

static void touch(Addr begin, Addr end, UShort kind) {
    Int i;
    if (!recording || end <= lowest || begin >= highest) return;
    for (i = 0; i < watched_count; i++) {
        const Watched *w = &watched[i];
        Addr from = begin > w->begin ? begin : w->begin;
        Addr to = end < w->end ? end : w->end;
        if (from < to) record(w->offset + (UInt)(from - w->begin), (UShort)(to - from), kind);
    }
}

static VG_REGPARM(2) void on_load(Addr address, SizeT bytes) { touch(address, address + bytes, LOAD); }
static VG_REGPARM(2) void on_store(Addr address, SizeT bytes) { touch(address, address + bytes, STORE); }

/* --- instrumentation --- */

static void count_instruction(IRSB *out) {
    IRTemp before = newIRTemp(out->tyenv, Ity_I64), after = newIRTemp(out->tyenv, Ity_I64);
    IRExpr *counter = mkIRExpr_HWord((HWord)&now);
    addStmtToIRSB(out, IRStmt_WrTmp(before, IRExpr_Load(Iend_LE, Ity_I64, counter)));
    addStmtToIRSB(out,
                  IRStmt_WrTmp(after, IRExpr_Binop(Iop_Add64, IRExpr_RdTmp(before), IRExpr_Const(IRConst_U64(1)))));
    addStmtToIRSB(out, IRStmt_Store(Iend_LE, counter, IRExpr_RdTmp(after)));
}

static void report(IRSB *out, Bool is_store, IRExpr *address, Int bytes, IRExpr *guard) {
    IRExpr **arguments = mkIRExprVec_2(address, mkIRExpr_HWord((HWord)bytes));
    IRDirty *call = is_store ? unsafeIRDirty_0_N(2, "on_store", VG_(fnptr_to_fnentry)(on_store), arguments)
                             : unsafeIRDirty_0_N(2, "on_load", VG_(fnptr_to_fnentry)(on_load), arguments);
    if (guard) call->guard = guard;
    addStmtToIRSB(out, IRStmt_Dirty(call));
}

static void report_swap(IRSB *out, const IRCAS *swap) {
    Int bytes = sizeofIRType(typeOfIRExpr(out->tyenv, swap->dataLo)) * (swap->dataHi ? 2 : 1);
    report(out, False, swap->addr, bytes, NULL);
    report(out, True, swap->addr, bytes, NULL);
}

static void report_helper(IRSB *out, const IRDirty *helper) {
    if (helper->mFx == Ifx_Read || helper->mFx == Ifx_Modify)
        report(out, False, helper->mAddr, helper->mSize, helper->guard);
    if (helper->mFx == Ifx_Write || helper->mFx == Ifx_Modify)
        report(out, True, helper->mAddr, helper->mSize, helper->guard);
}

static void report_guarded_load(IRSB *out, const IRLoadG *load) {
    IRType loaded = Ity_INVALID, widened = Ity_INVALID;
    typeOfIRLoadGOp(load->cvt, &widened, &loaded);
    report(out, False, load->addr, sizeofIRType(loaded), load->guard);
}

static IRSB *instrument(VgCallbackClosure *closure, IRSB *in, const VexGuestLayout *layout,
                        const VexGuestExtents *extents, const VexArchInfo *arch, IRType guest_word, IRType host_word) {
    IRSB *out = deepCopyIRSBExceptStmts(in);
    Int i;
    for (i = 0; i < in->stmts_used; i++) {
        IRStmt *st = in->stmts[i];
        switch (st->tag) {
        case Ist_IMark:
            count_instruction(out);
            break;
        case Ist_WrTmp:
            if (st->Ist.WrTmp.data->tag == Iex_Load)
                report(out, False, st->Ist.WrTmp.data->Iex.Load.addr, sizeofIRType(st->Ist.WrTmp.data->Iex.Load.ty),
                       NULL);
            break;
        case Ist_Store:
            report(out, True, st->Ist.Store.addr, sizeofIRType(typeOfIRExpr(in->tyenv, st->Ist.Store.data)), NULL);
            break;
        case Ist_StoreG:
            report(out, True, st->Ist.StoreG.details->addr,
                   sizeofIRType(typeOfIRExpr(in->tyenv, st->Ist.StoreG.details->data)), st->Ist.StoreG.details->guard);
            break;
        case Ist_LoadG:
            report_guarded_load(out, st->Ist.LoadG.details);
            break;
        case Ist_CAS:
            report_swap(out, st->Ist.CAS.details);
            break;
        case Ist_Dirty:
            report_helper(out, st->Ist.Dirty.details);
            break;
        default:
            break;
        }
        addStmtToIRSB(out, st);
    }
    return out;
}

/* --- requests of the traced program --- */

static void watch(Addr begin, SizeT bytes) {
    if (watched_count == MAX_WATCHED) {
        VG_(umsg)("more than %d buffers\n", MAX_WATCHED);
        VG_(exit)(3);
    }
    watched[watched_count].begin = begin;
    watched[watched_count].end = begin + bytes;
    watched[watched_count].offset = space_bytes;
    watched_count++;
    space_bytes += (UInt)bytes;
    if (begin < lowest) lowest = begin;
    if (begin + bytes > highest) highest = begin + bytes;
}

static Bool on_request(ThreadId thread, UWord *request, UWord *result) {
    *result = 0;
    switch (request[0]) {
    case DIAGMEM_WATCH:
        watch(request[1], request[2]);
        return True;
    case DIAGMEM_START:
        record((UInt)request[1], 0, START);
        recording = True;
        return True;
    case DIAGMEM_END:
        recording = False;
        record((UInt)request[1], 0, END);
        return True;
    default:
        return False;
    }
}

static Bool on_option(const HChar *argument) {
    if (VG_INT_CLO(argument, "--events-fd", events_fd)) return True;
    return False;
}

static void print_usage(void) { VG_(printf)("    --events-fd=N   write events to file descriptor N\n"); }
static void print_debug_usage(void) {}

static void after_options(void) {
    if (events_fd < 0) VG_(fmsg_bad_option)("--events-fd", "it must be given\n");
}

static void finish(Int exit_code) { flush(); }

static void before_options(void) {
    VG_(details_name)("diagmem");
    VG_(details_version)(NULL);
    VG_(details_description)("records loads and stores in watched buffers");
    VG_(details_copyright_author)("The diagmem authors");
    VG_(details_bug_reports_to)("the diagmem authors");
    VG_(basic_tool_funcs)(after_options, instrument, finish);
    VG_(needs_client_requests)(on_request);
    VG_(needs_command_line_options)(on_option, print_usage, print_debug_usage);
}

VG_DETERMINE_INTERFACE_VERSION(before_options)
