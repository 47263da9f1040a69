// A window whose number of ranks is known only at run time is not one of 8 ranks.
// EXPECT: a Window of one number of ranks is not a Window of another
#include "mscclpp/collective/all_reduce.hpp"

using namespace mscclpp;

#ifdef CORRECT
constexpr int ranks = 8;
#else
constexpr int ranks = 0;
#endif

void fill(AllReduce<float, Sum, AllReduceConfig{.ranks = 8}>::Args& args, std::byte* const* bases) {
  args.window = makeWindow<ranks>(bases, 8);
}
