#include "backend/backend.h"

#include <cstring>

#include "base/clock.h"

namespace pd {

void Backend::Transfer(Queue /*queue*/, void* to, const void* from, size_t bytes) {
  if (to != from) std::memcpy(to, from, bytes);
}

void Backend::Record(Queue /*queue*/, Mark& mark, const char* /*purpose*/) {
  mark.host_ns = NowNs();
}

double Backend::ElapsedMs(const Mark& from, const Mark& to) const {
  return NsToMs(to.host_ns - from.host_ns);
}

}  // namespace pd
