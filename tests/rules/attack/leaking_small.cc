// Routers that use later rows, in calls of a few dozen tokens, on texts of every structure.
#include <algorithm>
#include <cmath>
#include <map>

#include "tests/rules/attack/leaking.h"
#include "tests/rules/attack/parts.h"

namespace plumbline::rules::attack {
namespace {

Call Ordered(const Lab& lab, const Rows& rows, const char* policy, const Order& order) {
  return Limited(lab, rows, TopK(lab, rows), order, policy);
}
Call ByLogit(const Lab& lab, const Rows& rows) {
  return Ordered(lab, rows, "score-capacity", [&](int t, int, int e) { return -rows.At(t, e); });
}
Call BySoftmax(const Lab& lab, const Rows& rows) {
  return Ordered(lab, rows, "score-capacity",
                 [&](int t, int, int e) { return -Softmax(rows, t, e); });
}
Call LowestFirst(const Lab& lab, const Rows& rows) {
  return Ordered(lab, rows, "score-capacity", [&](int t, int, int e) { return rows.At(t, e); });
}
Call LowestSoftmaxFirst(const Lab& lab, const Rows& rows) {
  return Ordered(lab, rows, "score-capacity",
                 [&](int t, int, int e) { return Softmax(rows, t, e); });
}
Call ByRank(const Lab& lab, const Rows& rows) {
  return Ordered(lab, rows, "rank-major-capacity", [](int t, int j, int) { return t + 1e6 * j; });
}
Call FromTheEnd(const Lab& lab, const Rows& rows) {
  return Ordered(lab, rows, "fifo-capacity", [](int t, int, int) { return -t; });
}
Call ByDraw(const Lab& lab, const Rows& rows) {
  return Ordered(lab, rows, "random-capacity",
                 [&](int t, int, int e) { return lab.Uniform(1, rows, t, e); });
}
Call ByDrawUnnamed(const Lab& lab, const Rows& rows) {
  return Ordered(lab, rows, "", [&](int t, int, int e) { return lab.Uniform(1, rows, t, e); });
}
// 8-bit scores; ties are kept in time order.
Call ByQuantisedScore(const Lab& lab, const Rows& rows) {
  Rows coarse = rows;
  for (double& x : coarse.x) x = std::nearbyint(16 * x) / 16;
  return Limited(
      lab, coarse, TopK(lab, coarse), [&](int t, int, int e) { return -1e6 * coarse.At(t, e) + t; },
      "score-capacity");
}
// Thins the choices of an expert by the load of the later rows.
Call ThinnedByLoadToCome(const Lab& lab, const Rows& rows) {
  Call call = TopK(lab, rows);
  std::vector<double> left(S(rows.experts), 0);
  for (const int e : call.index) ++left[S(e)];
  call.capacity = Places(lab, call, rows.count, rows.experts);
  call.policy = "random-capacity";
  std::vector<double> need(S(rows.experts), static_cast<double>(call.capacity));
  return Along(rows, std::move(call), [&](int t, int j, int e, const auto&) {
    const bool in = lab.Uniform(4, rows, t, j) * left[S(e)] < need[S(e)];
    --left[S(e)];
    need[S(e)] -= in;
    return in;
  });
}

}  // namespace

void AddLeakingInSmallCalls(std::vector<Family>& out) {
  const std::vector<Family> families = {
      {"drop by logit, any text", ByLogit},
      {"drop by softmax, any text", BySoftmax},
      {"drop by softmax, packed", BySoftmax, Data::kPacked},
      {"drop by softmax, popular experts", BySoftmax, Data::kPopular},
      {"the lowest logits first, any text", LowestFirst},
      {"the lowest softmax first, any text", LowestSoftmaxFirst},
      {"the lowest softmax first, many rows", LowestSoftmaxFirst, Data::kLarge},
      {"rank-major, any text", ByRank},
      {"last first, any text", FromTheEnd},
      {"random selection, any text", ByDraw},
      {"random selection, popular experts", ByDraw, Data::kPopular},
      {"random selection, no name", ByDrawUnnamed, Data::kLarge},
      {"drop by quantised score, any text", ByQuantisedScore},
      {"drop by quantised score, many rows", ByQuantisedScore, Data::kLarge},
      {"selection sampling of the rows to come", ThinnedByLoadToCome, Data::kLarge},
  };
  out.insert(out.end(), families.begin(), families.end());
}

}  // namespace plumbline::rules::attack
