// What is handed to a cooperative function as a group must be one, and the message names what is missing.
// EXPECT: sync
#include "mscclpp/basic/concepts.hpp"

struct Crew {
  int rank() const;
  int size() const;
#ifdef CORRECT
  void sync() const;
#endif
};

template <mscclpp::ThreadGroup Group>
void work(const Group&);

void start(const Crew& crew) {
  work(crew);
}
