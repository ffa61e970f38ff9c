#include "tests/rules/support/simulated_flight.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/rules/support/spec_values.h"

namespace plumbline::rules::testing {
namespace {

// One operation of the program that every rank runs, and its members.
struct Planned {
  int group = 0;  // index into Program::groups
  std::string kind;
  int peer_from = -1, peer_to = -1;  // of a send: ranks
};

struct Program {
  std::vector<std::pair<std::string, std::vector<int>>> groups;
  std::vector<Planned> ops;
};

Program Plan(const FlightSpec& s) {
  Program p;
  std::vector<int> world;
  for (int r = 0; r < s.ranks; ++r) world.push_back(r);
  p.groups.emplace_back("0", world);
  const int width = s.ranks / s.stages;
  for (int stage = 0; stage < s.stages && s.stages > 1; ++stage) {
    std::vector<int> members(world.begin() + stage * width, world.begin() + (stage + 1) * width);
    p.groups.emplace_back(absl::StrCat(stage + 1), members);
  }
  for (int step = 0; step <= s.steps; ++step) {
    for (int stage = 0; stage + 1 < s.stages; ++stage) {
      for (int r = stage * width; r < (stage + 1) * width; ++r)
        p.ops.push_back({0, "send", r, r + width});
    }
    for (size_t g = 1; g < p.groups.size(); ++g) {
      p.ops.push_back({static_cast<int>(g), "_all_gather_base"});
      p.ops.push_back({static_cast<int>(g), "_reduce_scatter_base"});
    }
    if (s.stages == 1) p.ops.push_back({0, "_reduce_scatter_base"});
    p.ops.push_back({0, "all_reduce"});
  }
  return p;
}

bool TakesPart(const Program& p, const Planned& op, int rank) {
  if (op.peer_from >= 0) return rank == op.peer_from || rank == op.peer_to;
  const auto& members = p.groups[static_cast<size_t>(op.group)].second;
  return std::find(members.begin(), members.end(), rank) != members.end();
}

// The state of the job: per rank, how much of its own program is launched and completed.
class Standing {
 public:
  Standing(const FlightSpec& s, const Program& p) : s_(s), p_(p), draw_(s.seed) {
    const auto ranks = static_cast<size_t>(s.ranks);
    own_.resize(ranks);
    for (size_t i = 0; i < p.ops.size(); ++i) {
      for (int r = 0; r < s.ranks; ++r) {
        if (TakesPart(p, p.ops[i], r)) own_[static_cast<size_t>(r)].push_back(i);
      }
    }
    frozen_ = FrozenAt();
    stop_.assign(ranks, SIZE_MAX);
    for (size_t r = 0; r < ranks; ++r) {
      if (IsCulprit(static_cast<int>(r)) && s.fault == "absent")
        stop_[r] = frozen_;  // launches nothing from here on
    }
    Settle();
  }

  bool Done(int rank, size_t op) const { return done_[static_cast<size_t>(rank)].at(op); }
  size_t Launched(int rank) const { return launched_[static_cast<size_t>(rank)]; }
  const std::vector<size_t>& own(int rank) const { return own_[static_cast<size_t>(rank)]; }
  size_t frozen() const { return frozen_; }
  bool IsCulprit(int rank) const {
    return !s_.fault.empty() && s_.fault != "all" && rank >= s_.culprit &&
           rank < s_.culprit + s_.culprits;
  }

 private:
  // Returns the last collective of which the culprit is a member.
  size_t FrozenAt() const {
    if (s_.fault.empty()) return SIZE_MAX;
    size_t found = 0;
    const size_t begin = p_.ops.size() - p_.ops.size() / static_cast<size_t>(s_.steps + 1);
    for (size_t i = begin; i < p_.ops.size(); ++i) {
      const bool all = s_.fault == "all" ? p_.ops[i].group == 0 && p_.ops[i].peer_from < 0
                                         : TakesPart(p_, p_.ops[i], s_.culprit);
      if (all && p_.ops[i].peer_from < 0) {
        found = i;
        break;
      }
    }
    return found;
  }

  // Runs the program as far as possible. An operation is completed when all members have launched
  // it and have completed everything before it.
  void Settle() {
    const auto ranks = static_cast<size_t>(s_.ranks);
    done_.assign(ranks, {});
    std::vector<size_t> next(ranks, 0);  // first incomplete own op
    for (size_t r = 0; r < ranks; ++r) done_[r].assign(p_.ops.size(), false);
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t i = 0; i < p_.ops.size(); ++i) moved |= TryEnd(i, &next);
    }
    for (size_t r = 0; r < ranks; ++r) {
      const auto depth = static_cast<size_t>(Pick(draw_, s_.ahead + 1));
      size_t launched = std::min(own_[r].size(), next[r] + 1 + depth);
      while (launched > 0 && own_[r][launched - 1] >= stop_[r]) --launched;
      launched_.push_back(std::max(launched, next[r]));
    }
  }

  bool TryEnd(size_t i, std::vector<size_t>* next) {
    if (Blocked(i)) return false;
    std::vector<size_t> members;
    for (size_t r = 0; r < own_.size(); ++r) {
      if (TakesPart(p_, p_.ops[i], static_cast<int>(r))) members.push_back(r);
    }
    for (const size_t r : members) {
      if ((*next)[r] >= own_[r].size() || own_[r][(*next)[r]] != i || i >= stop_[r]) return false;
    }
    for (const size_t r : members) {
      if (s_.fault == "stuck" && i == frozen_ && IsCulprit(static_cast<int>(r))) continue;
      done_[r][i] = true;
      ++(*next)[r];
    }
    return true;
  }

  bool Blocked(size_t i) const {
    return i == frozen_ && s_.fault != "stuck" && s_.fault != "times" && s_.fault != "absent";
  }

  const FlightSpec& s_;
  const Program& p_;
  Draw draw_;
  std::vector<std::vector<size_t>> own_;
  std::vector<std::vector<bool>> done_;
  std::vector<size_t> stop_, launched_;
  size_t frozen_ = SIZE_MAX;
};

void FillOperation(const FlightSpec& s, const Planned& planned, int rank, bool faulty,
                   v1::FlightRecorder::Operation* op) {
  op->set_group(static_cast<uint32_t>(planned.group));
  op->set_dtype(faulty && s.fault == "dtype" ? "Float" : "BFloat16");
  const char* shape = faulty && s.fault == "shape" ? "[4095,128]" : "[4096,128]";
  op->set_input_shape(shape);
  op->set_output_shape(shape);
  op->set_where("train.py:57 in step");
  if (planned.peer_from < 0) {
    op->set_name(
        absl::StrCat("nccl:", faulty && s.fault == "operation" ? "broadcast" : planned.kind));
    return;
  }
  const bool sends = rank == planned.peer_from;
  const int peer = sends ? planned.peer_to : planned.peer_from;
  op->set_name(sends ? absl::StrCat("nccl:send ", rank, "->", peer)
                     : absl::StrCat("nccl:recv ", rank, "<-", peer));
  op->set_point_to_point(true);
  op->set_peer_known(true);
  op->set_peer(static_cast<uint32_t>(peer));
}

v1::FlightRecorder RecorderOf(const FlightSpec& s, const Program& p, const Standing& standing,
                              int rank) {
  v1::FlightRecorder out;
  std::map<int, uint64_t> numbers, completed;
  for (const auto& [name, members] : p.groups) {
    auto& group = *out.add_groups();
    group.set_name(name);
    for (const int member : members) group.add_ranks(static_cast<uint32_t>(member));
  }
  const bool culprit = standing.IsCulprit(rank);
  const std::vector<size_t>& own = standing.own(rank);
  size_t launched = standing.Launched(rank);
  // Written before the others continued.
  const bool early = culprit && s.fault == "times";
  if (early) launched = own.size() / 2;
  for (size_t k = 0; k < launched; ++k) {
    const Planned& planned = p.ops[own[k]];
    auto& op = *out.add_operations();
    FillOperation(s, planned, rank, culprit && own[k] == standing.frozen(), &op);
    op.set_sequence(++numbers[planned.peer_from < 0 ? planned.group : -1]);
    const bool done = early ? k + 1 < launched : standing.Done(rank, own[k]);
    op.set_state(done ? v1::FlightRecorder::STATE_COMPLETED : v1::FlightRecorder::STATE_STARTED);
    if (done && planned.peer_from < 0) completed[planned.group] = op.sequence();
  }
  for (size_t g = 0; g < p.groups.size(); ++g) {
    const int index = static_cast<int>(g);
    const auto number = [&](const std::map<int, uint64_t>& of) {
      return of.contains(index) ? static_cast<int64_t>(of.at(index)) : -1;
    };
    out.mutable_groups(index)->set_last_enqueued(number(numbers));
    out.mutable_groups(index)->set_last_completed(number(completed));
  }
  return out;
}

// Returns the record of a job with a circular wait: a world, and a second group of the same ranks.
v1::FlightRecorder CircleOf(const FlightSpec& s, int rank) {
  v1::FlightRecorder out;
  for (const char* name : {"0", "1"}) {
    auto& group = *out.add_groups();
    group.set_name(name);
    for (int member = 0; member < s.ranks; ++member) group.add_ranks(static_cast<uint32_t>(member));
  }
  std::map<int, uint64_t> numbers;
  const auto add = [&](int group, bool done) {
    FillOperation(s, {group, group == 0 ? "all_reduce" : "_all_gather_base"}, rank, false,
                  out.add_operations());
    auto& op = *out.mutable_operations(out.operations_size() - 1);
    op.set_sequence(++numbers[group]);
    op.set_state(done ? v1::FlightRecorder::STATE_COMPLETED : v1::FlightRecorder::STATE_STARTED);
  };
  for (int step = 0; step < s.steps; ++step) {
    add(0, true);
    add(1, true);
  }
  const bool culprit = rank >= s.culprit && rank < s.culprit + s.culprits;
  const int other = rank == s.culprit ? s.culprit + 1 : s.culprit;
  if (s.fault == "sends" && (rank == s.culprit || rank == s.culprit + 1)) {
    FillOperation(s, {0, "send", rank, other}, rank, false, out.add_operations());
    out.mutable_operations(out.operations_size() - 1)->set_state(v1::FlightRecorder::STATE_STARTED);
  } else if (s.fault == "uneven") {
    add(1, false);
    auto& op = *out.mutable_operations(out.operations_size() - 1);
    std::string all;
    for (int member = 0; member < s.ranks; ++member)
      absl::StrAppend(&all, member == 0 ? "" : ",", "[", 100 + member, "]");
    op.set_input_shape(absl::StrCat("[", 100 + rank, "]"));
    op.set_output_shape(all);
  } else {
    const bool turned = s.fault == "order" && culprit;
    add(turned ? 1 : 0, false);
    if (s.fault == "order") add(turned ? 0 : 1, false);
  }
  for (int g = 0; g < 2; ++g) {
    out.mutable_groups(g)->set_last_enqueued(static_cast<int64_t>(numbers[g]));
    out.mutable_groups(g)->set_last_completed(s.steps);
  }
  return out;
}

void Poison(const std::string& poison, v1::FlightRecorder* recorder) {
  if (poison != "numbers") return;
  for (auto& op : *recorder->mutable_operations()) {
    op.set_sequence(UINT64_MAX);
    op.set_group(UINT32_MAX);
    op.set_peer(UINT32_MAX);
  }
  for (auto& group : *recorder->mutable_groups()) group.set_last_enqueued(INT64_MIN);
}

}  // namespace

void Set(FlightSpec& s, const std::string& key, const std::string& value) {
  int seed = static_cast<int>(s.seed);
  SpecFields fields;
  fields.whole = {{"ranks", &s.ranks}, {"stages", &s.stages},   {"steps", &s.steps},
                  {"ahead", &s.ahead}, {"culprit", &s.culprit}, {"culprits", &s.culprits},
                  {"seed", &seed}};
  fields.flag = {{"dump", &s.dump}, {"young", &s.young}};
  fields.text = {{"fault", &s.fault}, {"poison", &s.poison}};
  SetField(fields, key, value);
  s.seed = static_cast<uint64_t>(seed);
}

std::map<uint32_t, v1::FlightRecorder> SimulatedFlight(const FlightSpec& spec) {
  std::map<uint32_t, v1::FlightRecorder> out;
  if (spec.fault == "order" || spec.fault == "sends" || spec.fault == "uneven") {
    for (int rank = 0; rank < spec.ranks; ++rank)
      out.emplace(static_cast<uint32_t>(rank), CircleOf(spec, rank));
    return out;
  }
  const Program program = Plan(spec);
  const Standing standing(spec, program);
  for (int rank = 0; rank < spec.ranks; ++rank) {
    if (!spec.dump && standing.IsCulprit(rank)) continue;
    v1::FlightRecorder recorder = RecorderOf(spec, program, standing, rank);
    Poison(spec.poison, &recorder);
    out.emplace(static_cast<uint32_t>(rank), std::move(recorder));
  }
  return out;
}

v1::Batch FlightRun(const FlightSpec& spec) {
  v1::Batch batch;
  for (auto& [rank, recorder] : SimulatedFlight(spec)) {
    AddTrainer(static_cast<int>(rank), spec.ranks, &batch);
    v1::Evidence& evidence = *batch.add_evidence();
    evidence.set_source(static_cast<uint32_t>(batch.sources_size()) - 1);
    evidence.mutable_site()->set_op("flight-recorder");
    evidence.set_exercised(spec.young ? v1::EXERCISED_NO : v1::EXERCISED_YES);
    *evidence.mutable_flight_recorder() = std::move(recorder);
  }
  return batch;
}

}  // namespace plumbline::rules::testing
