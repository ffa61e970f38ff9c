#include "analysis/flight/frozen.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "analysis/flight/handed.h"

namespace plumbline::flight {
namespace {

constexpr size_t kMostShown = 256;  // of a list of shapes

// One analysis of a job: runs the tests in the order of Take, most certain first. The first that
// finds something decides.
class Look {
 public:
  explicit Look(const Job& job) : job_(job) {
    for (const auto& [rank, record] : job_.ranks) {
      if (const Op* head = record.head()) heads_[rank] = head;
    }
  }

  Frozen Take() {
    // Nothing is pending: the job continues, or is over.
    if (heads_.empty()) return {};
    if (DifferentTimes() || Mismatched() || NotLaunched() || NotCompleted() || AllAtOne() ||
        InACircle())
      return Whole();
    out_.kind = Frozen::Kind::kUnexplained;
    out_.op = *heads_.begin()->second;
    return Whole();
  }

 private:
  using Ops = std::vector<std::pair<uint32_t, const Op*>>;  // of members, in their order

  const RankRecord* RecordOf(uint32_t rank) const {
    const auto found = job_.ranks.find(rank);
    return found == job_.ranks.end() ? nullptr : &found->second;
  }
  const std::vector<uint32_t>& MembersOf(const std::string& group) const {
    return job_.members.at(group);
  }

  // Tests for an operation that one member completed although another, by its own count, had not
  // launched it.
  bool DifferentTimes() {
    struct Done {
      const Op* op = nullptr;
      uint32_t rank = 0;
    };
    // Find the newest that any member completed, for each group.
    std::map<std::string, Done> latest;
    for (const auto& [rank, record] : job_.ranks) {
      for (const Op& op : record.ops) {
        if (op.pending || op.point_to_point || !EndsForAll(op.kind)) continue;
        Done& done = latest[op.group];
        if (done.op == nullptr || done.op->sequence < op.sequence) done = {&op, rank};
      }
    }
    // If a member records that it has not launched it, it wrote its dump earlier.
    for (const auto& [group, done] : latest) {
      for (const uint32_t member : MembersOf(group)) {
        const RankRecord* other = RecordOf(member);
        if (other == nullptr || other->Launched(group, done.op->sequence)) continue;
        const auto view = other->groups.find(group);
        if (view == other->groups.end() || !view->second.status_stated) continue;
        out_.kind = Frozen::Kind::kDifferentTimes;
        out_.op = *done.op;
        out_.ranks = {done.rank, member};
        return true;
      }
    }
    return false;
  }

  // Tests the collectives in which some rank is blocked.
  bool Mismatched() {
    std::set<std::pair<std::string, uint64_t>> looked;
    for (const auto& [rank, head] : heads_) {
      if (head->point_to_point || !looked.emplace(head->group, head->sequence).second) continue;
      Ops ops;
      for (const uint32_t member : MembersOf(head->group)) {
        const RankRecord* record = RecordOf(member);
        if (record == nullptr) continue;
        if (const Op* op = record->Find(head->group, head->sequence)) ops.emplace_back(member, op);
      }
      if (Differ("operation", ops, Texts(ops, &Op::kind), &Op::kind) ||
          HandedDiffers(head->group, head->kind, ops))
        return true;
    }
    return false;
  }

  // Tests dtype and count, as the library compares them.
  bool HandedDiffers(const std::string& group, const std::string& kind, const Ops& ops) {
    const bool in_bytes =
        MovesOnly(kind) && std::all_of(ops.begin(), ops.end(), [](const auto& member) {
          return WidthOf(member.second->dtype) != 0;
        });
    const std::vector<std::string> dtypes = Texts(ops, &Op::dtype);
    // Parts may have any size, but their dtypes must have equal widths.
    if (in_bytes && !SameShapes(kind)) {
      std::vector<std::string> widths;
      for (const std::string& dtype : dtypes) widths.push_back(std::to_string(WidthOf(dtype)));
      return Differ("dtype", ops, widths, &Op::dtype);
    }
    if (!in_bytes && Differ("dtype", ops, dtypes, &Op::dtype)) return true;
    if (!SameShapes(kind) || UnevenAsListed(group, kind, ops)) return false;
    std::vector<const Op*> calls;
    for (const auto& [rank, op] : ops) calls.push_back(op);
    for (const bool outputs : {false, true}) {
      const std::vector<std::string> sizes = Comparable(calls, outputs, in_bytes);
      if (Differ("shape", ops, sizes, outputs ? &Op::output_shape : &Op::input_shape)) {
        // Equal numbers of bytes would have been the same call, so the dtype is more informative
        // than the shape.
        if (in_bytes) Differ("dtype", ops, dtypes, &Op::dtype);
        return true;
      }
    }
    return false;
  }

  static std::vector<std::string> Texts(const Ops& ops, std::string Op::*of) {
    std::vector<std::string> out;
    for (const auto& [rank, op] : ops) out.push_back(op->*of);
    return out;
  }

  // Returns true for an all-gather (or reduce-scatter) of parts of different sizes: every member
  // lists the same outputs (inputs), and passes in (takes) the one at its own place. If a list was
  // cut, compares only what is listed.
  bool UnevenAsListed(const std::string& group, std::string_view kind, const Ops& ops) const {
    if (kind != "all_gather" && kind != "reduce_scatter") return false;
    const auto& members = MembersOf(group);
    std::vector<uint64_t> listed;
    for (const auto& [rank, op] : ops) {
      const bool gathers = kind == "all_gather";
      const auto all = CountsIn(gathers ? op->output_shape : op->input_shape);
      const auto part = CountsIn(gathers ? op->input_shape : op->output_shape);
      if (!all || !part || part->tensors.size() != 1) return false;
      if (listed.empty()) listed = all->tensors;
      const auto place =
          static_cast<size_t>(std::find(members.begin(), members.end(), rank) - members.begin());
      const bool cut = !all->whole && listed.size() < members.size();
      if (all->tensors != listed || members.size() < 2 ||
          (!cut && listed.size() != members.size()) ||
          (place < listed.size() ? listed[place] != part->tensors[0] : !cut))
        return false;
    }
    return !listed.empty();
  }

  // `keys` are those of the operations, in their order. Equal keys mean equal values; an empty key
  // is ignored. `shown` is the field to display.
  bool Differ(const char* what, const Ops& ops, const std::vector<std::string>& keys,
              std::string Op::*shown) {
    std::map<std::string, std::vector<uint32_t>> ranks_of;
    std::map<std::string, std::string> text_of;
    for (size_t i = 0; i < ops.size(); ++i) {
      if (keys[i].empty()) continue;
      ranks_of[keys[i]].push_back(ops[i].first);
      text_of.try_emplace(keys[i], (ops[i].second->*shown).substr(0, kMostShown));
    }
    if (ranks_of.size() < 2) return false;
    // Name the minority. If there is none, name all.
    size_t most = 0, with_most = 0;
    for (const auto& [value, ranks] : ranks_of) most = std::max(most, ranks.size());
    for (const auto& [value, ranks] : ranks_of) with_most += ranks.size() == most ? 1 : 0;
    out_ = {};
    out_.kind = Frozen::Kind::kMismatched;
    out_.what = what;
    out_.op = *ops.front().second;
    out_.tie = with_most > 1;
    for (const auto& [value, ranks] : ranks_of) {
      const bool minority = out_.tie || ranks.size() < most;
      if (minority) out_.ranks.insert(out_.ranks.end(), ranks.begin(), ranks.end());
      std::string& text =
          ranks.size() == most && out_.majority.empty() ? out_.majority : out_.minority;
      if (text.empty()) text = text_of.at(value);
    }
    return true;
  }

  // Returns the ranks that `rank` waits for at its head.
  std::vector<uint32_t> WaitsFor(uint32_t rank, const Op& head) const {
    std::vector<uint32_t> out;
    // A send or receive waits only for its peer.
    if (head.point_to_point) {
      if (head.peer >= 0 && !IsCounterpart(rank, head, static_cast<uint32_t>(head.peer)))
        out.push_back(static_cast<uint32_t>(head.peer));
      return out;
    }
    for (const uint32_t member : MembersOf(head.group)) {
      if (member == rank) continue;
      const RankRecord* record = RecordOf(member);
      if (record == nullptr || !record->Launched(head.group, head.sequence)) {
        out.push_back(member);
        continue;
      }
      // It has launched it, but is blocked at an older one.
      const Op* own = record->Find(head.group, head.sequence);
      const auto at = heads_.find(member);
      if (own != nullptr && own->pending && at != heads_.end() && at->second != own)
        out.push_back(member);
    }
    return out;
  }

  bool IsCounterpart(uint32_t rank, const Op& head, uint32_t peer) const {
    const auto other = heads_.find(peer);
    if (other == heads_.end()) return false;
    const Op& theirs = *other->second;
    const bool opposite = (head.kind == "send" && theirs.kind == "recv") ||
                          (head.kind == "recv" && theirs.kind == "send");
    return opposite && theirs.group == head.group && theirs.peer == static_cast<int64_t>(rank);
  }

  // Tests for awaited ranks that have nothing pending.
  bool NotLaunched() {
    std::map<uint32_t, std::vector<const Op*>> waited;  // waiting heads, by awaited rank
    for (const auto& [rank, head] : heads_) {
      for (const uint32_t other : WaitsFor(rank, *head)) waited[other].push_back(head);
    }
    std::erase_if(waited, [&](const auto& entry) { return heads_.contains(entry.first); });
    for (const auto& [rank, at] : waited) {
      if (RecordOf(rank) == nullptr) out_.without_dump.push_back(rank);
    }
    // A dump that shows nothing pending is stronger evidence than a missing one.
    const bool seen = out_.without_dump.size() < waited.size();
    for (const auto& [rank, at] : waited) {
      if (seen && RecordOf(rank) == nullptr) continue;
      if (out_.ranks.empty()) out_.op = MostWaitedAt(at);
      out_.ranks.push_back(rank);
    }
    const bool few = !seen && out_.without_dump.size() > job_.ranks.size();
    out_.kind = few ? Frozen::Kind::kFewDumps : Frozen::Kind::kNotLaunched;
    return !out_.ranks.empty();
  }

  // A rank that has advanced further, as the root of a broadcast does, waits at a later operation.
  static const Op& MostWaitedAt(const std::vector<const Op*>& heads) {
    std::map<std::pair<std::string_view, uint64_t>, size_t> waiters;
    for (const Op* head : heads) ++waiters[{head->group, head->sequence}];
    const auto of = [&](const Op* head) { return waiters[{head->group, head->sequence}]; };
    const Op* most = heads.front();
    for (const Op* head : heads) {
      const bool earlier = head->group == most->group && head->sequence < most->sequence;
      if (of(head) > of(most) || (of(head) == of(most) && earlier)) most = head;
    }
    return *most;
  }

  // Tests the oldest pending operation of each group, if a peer has completed it.
  bool NotCompleted() {
    for (const auto& [rank, record] : job_.ranks) {
      std::set<std::string> looked;
      for (const Op& op : record.ops) {
        if (!op.pending || op.point_to_point || !EndsForAll(op.kind)) continue;
        if (!looked.insert(op.group).second || !PeerCompleted(rank, op)) continue;
        if (out_.ranks.empty()) out_.op = op;
        if (out_.ranks.empty() || out_.ranks.back() != rank) out_.ranks.push_back(rank);
      }
    }
    out_.kind = Frozen::Kind::kNotCompleted;
    return !out_.ranks.empty();
  }

  bool PeerCompleted(uint32_t rank, const Op& op) const {
    const auto& members = MembersOf(op.group);
    return std::any_of(members.begin(), members.end(), [&](uint32_t member) {
      const RankRecord* record = member == rank ? nullptr : RecordOf(member);
      return record != nullptr && record->Completed(op.group, op.sequence);
    });
  }

  // Tests whether every member of one group is blocked in the same operation.
  bool AllAtOne() {
    const Op& first = *heads_.begin()->second;
    const auto& members = MembersOf(first.group);
    for (const uint32_t member : members) {
      const auto head = heads_.find(member);
      if (head == heads_.end() || !head->second->Same(first)) return false;
    }
    if (first.point_to_point || heads_.size() != members.size()) return false;
    out_.kind = Frozen::Kind::kAllAtOne;
    out_.op = first;
    for (const auto& [rank, head] : heads_) {
      if (!head->started) out_.ranks.push_back(rank);
    }
    // In dumps without the device's state, all are alike.
    if (2 * out_.ranks.size() >= heads_.size()) out_.ranks.clear();
    if (!out_.ranks.empty()) out_.kind = Frozen::Kind::kNotStarted;
    return true;
  }

  // Tests for ranks that wait for each other. If only collectives are involved, two groups are used
  // in different orders. If only sends and receives are involved, no rank runs the matching
  // operation. If both are, there is no evidence: a small send ends before it is received.
  bool InACircle() {
    const std::vector<uint32_t> circle = FindCircle();
    if (circle.empty()) return false;
    std::map<std::pair<std::string_view, uint64_t>, std::vector<uint32_t>>
        at;  // blocked collectives
    size_t point_to_point = 0;
    for (const uint32_t rank : circle) {
      const Op& head = *heads_.at(rank);
      point_to_point += head.point_to_point ? 1 : 0;
      if (!head.point_to_point) at[{head.group, head.sequence}];
    }
    if (point_to_point != 0 && point_to_point != circle.size()) return false;
    out_.kind = Frozen::Kind::kMismatched;
    out_.op = *heads_.at(circle.front());
    if (point_to_point != 0) {
      out_.what = "direction";
      out_.tie = true;
      out_.ranks = circle;
      out_.majority = ToPeer(*heads_.at(circle[0]));
      out_.minority = ToPeer(*heads_.at(circle[circle.size() - 1]));
      return true;
    }
    return Order(&at);
  }

  static std::string ToPeer(const Op& op) {
    return op.kind + (op.kind == "send" ? " to rank " : " from rank ") + std::to_string(op.peer);
  }

  // Finds which ranks began with which operation. Of all ranks blocked in an operation of the
  // circle, the smallest group is named.
  bool Order(std::map<std::pair<std::string_view, uint64_t>, std::vector<uint32_t>>* at) {
    size_t most = 0, with_most = 0;
    for (const auto& [rank, head] : heads_) {
      if (const auto found = at->find({head->group, head->sequence}); found != at->end())
        found->second.push_back(rank);
    }
    for (const auto& [op, ranks] : *at) most = std::max(most, ranks.size());
    for (const auto& [op, ranks] : *at) with_most += ranks.size() == most ? 1 : 0;
    out_.what = "order";
    out_.tie = with_most > 1;
    for (const auto& [op, ranks] : *at) {
      if (out_.tie || ranks.size() < most)
        out_.ranks.insert(out_.ranks.end(), ranks.begin(), ranks.end());
      std::string& text =
          ranks.size() == most && out_.majority.empty() ? out_.majority : out_.minority;
      const Op& first = *heads_.at(ranks.front());
      if (text.empty())
        text = first.kind + " " + std::to_string(first.sequence) + " of group " + first.group +
               " first";
      if (ranks.size() == most) out_.op = first;
    }
    return true;
  }

  // Returns ranks with pending operations, where each rank waits for the next. If there is no such
  // circle, returns none.
  std::vector<uint32_t> FindCircle() const {
    std::set<uint32_t> over;  // visited: no circle begins there
    for (const auto& [begin, head] : heads_) {
      std::vector<uint32_t> way;
      for (uint32_t rank = begin; !over.contains(rank);) {
        if (const auto met = std::find(way.begin(), way.end(), rank); met != way.end())
          return {met, way.end()};
        way.push_back(rank);
        const std::vector<uint32_t> next = WaitsFor(rank, *heads_.at(rank));
        const auto standing = std::find_if(next.begin(), next.end(),
                                           [&](uint32_t other) { return heads_.contains(other); });
        if (standing == next.end()) break;
        rank = *standing;
      }
      over.insert(way.begin(), way.end());
    }
    return {};
  }

  // Adds the waiting ranks.
  Frozen Whole() {
    std::sort(out_.ranks.begin(), out_.ranks.end());
    for (const auto& [rank, head] : heads_) {
      if (!std::binary_search(out_.ranks.begin(), out_.ranks.end(), rank))
        out_.waiting.push_back(rank);
    }
    if (out_.kind == Frozen::Kind::kNotCompleted && out_.waiting.empty())
      out_.kind = Frozen::Kind::kNoneWaits;
    return std::move(out_);
  }

  const Job& job_;
  std::map<uint32_t, const Op*> heads_;
  Frozen out_;
};

}  // namespace

Frozen FindFrozen(const Job& job) { return Look(job).Take(); }

}  // namespace plumbline::flight
