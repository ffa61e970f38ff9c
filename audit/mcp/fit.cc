#include "audit/mcp/fit.h"

#include <algorithm>
#include <utility>

namespace plumbline::audit::mcp {

void FitList(const char* list, const char* omitted, size_t most_elements, Json* object) {
  Json all = std::move((*object)[list]);
  (*object)[list] = Json::array();
  size_t left = kMostAnswerBytes - std::min(kMostAnswerBytes, LineOf(*object).size());
  size_t kept = 0;
  for (; kept < all.size() && kept < most_elements; ++kept) {
    const size_t bytes = LineOf(all[kept]).size() + 1;
    if (bytes > left) break;
    left -= bytes;
    (*object)[list].push_back(std::move(all[kept]));
  }
  (*object)[omitted] = all.size() - kept;
}

}  // namespace plumbline::audit::mcp
