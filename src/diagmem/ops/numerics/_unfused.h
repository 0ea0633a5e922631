/* A product is rounded before something is added to it, as everywhere else. Some compilers fuse both unless told not
 * to. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("fp-contract=off")
#else
#pragma STDC FP_CONTRACT OFF
#endif
