// A rank for the tests of capsules, which implements the agent's half of the protocol. Also queries
// the state of a server's capsules.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/crc32c.h"
#include "base/sha256.h"
#include "tests/server/support.h"

namespace plumbline::test {

// Returns the evidence that a rank sends for a step.
inline std::string TakenAt(const v1::Source& source, int64_t step) {
  v1::Batch batch = LeakingStep(source, step);
  batch.clear_progress();
  return batch.SerializeAsString();
}

// Returns a part of `size` bytes from `from` on, or the remaining bytes.
inline v1::CapsulePart PartOf(const v1::SendCapsule& order, const std::string& bytes, uint64_t from,
                              uint64_t size) {
  v1::CapsulePart part;
  part.set_capsule(order.capsule());
  part.set_step(order.step());
  part.set_offset(from);
  part.set_total(bytes.size());
  part.set_data(bytes.substr(from, size));
  part.set_crc32c(Crc32c(part.data().data(), part.data().size()));
  part.set_last(from + part.data().size() == bytes.size());
  if (part.last()) part.set_sha256(Sha256Of(bytes));
  return part;
}

inline v1::CapsulePart Refusal(const v1::SendCapsule& order, const std::string& why,
                               int64_t newest) {
  v1::CapsulePart part;
  part.set_capsule(order.capsule());
  part.set_step(order.step());
  part.set_error(why);
  part.set_newest_step(newest);
  return part;
}

// A rank that follows directives: it leaks at every step that it must send.
class CapsuleRank {
 public:
  CapsuleRank(const Plumbd& server, uint64_t stream, v1::Source source, uint64_t next = 1)
      : source_(std::move(source)), stream_id_(stream) {
    agent_ =
        std::make_unique<AgentStream>(server, stream, std::vector<v1::Source>{source_}, next, true);
    EXPECT_TRUE(agent_->Welcomed());
  }

  bool Step(int64_t step) { return agent_->Send(LeakingStep(source_, step), ++sequence_); }
  AgentStream& stream() { return *agent_; }
  const v1::Source& source() const { return source_; }

  // Returns the next request for a capsule, without releases.
  v1::SendCapsule Ordered() {
    const auto directive = agent_->NextDirective(
        [](const v1::Directive& d) { return d.has_capsule() && !d.capsule().release(); });
    EXPECT_TRUE(directive.has_value());
    return directive ? directive->capsule() : v1::SendCapsule();
  }
  bool Released() {
    return agent_->NextDirective([](const v1::Directive& d) { return d.capsule().release(); })
        .has_value();
  }

  std::string Bytes(int64_t step) const { return TakenAt(source_, step); }
  v1::CapsulePart Part(const v1::SendCapsule& order, uint64_t from, uint64_t size) const {
    v1::CapsulePart part = PartOf(order, Bytes(order.step()), from, size);
    part.set_stream_id(stream_id_);
    return part;
  }
  bool Send(v1::CapsulePart part) {
    v1::AgentMessage message;
    *message.mutable_capsule() = std::move(part);
    return agent_->SendRaw(message);
  }
  // Sends the whole capsule from `from` on, in parts of `size` bytes.
  void SendAll(const v1::SendCapsule& order, uint64_t from = 0, uint64_t size = 100) {
    const uint64_t total = Bytes(order.step()).size();
    for (; from < total; from += size) ASSERT_TRUE(Send(Part(order, from, size)));
  }
  void Refuse(const v1::SendCapsule& order, const std::string& why, int64_t newest = -1) {
    v1::CapsulePart part = Refusal(order, why, newest);
    part.set_stream_id(stream_id_);
    ASSERT_TRUE(Send(part));
  }

 private:
  const v1::Source source_;
  const uint64_t stream_id_;
  uint64_t sequence_ = 0;
  std::unique_ptr<AgentStream> agent_;
};

inline std::vector<v1::CapsuleInfo> Capsules(const Plumbd& server) {
  auto stub = v1::Query::NewStub(server.Channel());
  grpc::ClientContext context;
  v1::ListCapsulesResponse response;
  EXPECT_TRUE(stub->ListCapsules(&context, {}, &response).ok());
  return {response.capsules().begin(), response.capsules().end()};
}

// Returns true once the server's only capsule is in this state.
inline bool Reaches(const Plumbd& server, v1::CapsuleInfo::State state) {
  return Eventually([&] {
    const auto list = Capsules(server);
    return list.size() == 1 && list[0].state() == state;
  });
}

// Returns true once a capsule has all bytes of this rank.
inline bool Holds(const Plumbd& server, uint32_t rank) {
  return Eventually([&] {
    for (const v1::CapsuleInfo& capsule : Capsules(server)) {
      for (const auto& of : capsule.ranks()) {
        if (of.source().rank() == rank) return of.state() == v1::CapsuleRank::STATE_HELD;
      }
    }
    return false;
  });
}

}  // namespace plumbline::test
