// A cooperative function requires a ThreadGroup, and the message names the missing member.
// EXPECT: sync
#include "mscclpp/basic/concepts.hpp"

struct IncompleteGroup {
  int rank() const;
  int size() const;
#ifdef CORRECT
  void sync() const;
#endif
};

template <mscclpp::ThreadGroup Group>
void work(const Group&);

void start(const IncompleteGroup& group) {
  work(group);
}
