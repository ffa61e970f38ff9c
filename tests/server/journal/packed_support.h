// Random entries of a journal: everything that a batch may hold, and invalid content.
#pragma once

#include <bit>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <utility>

#include "plumbline/v1/journal.pb.h"
#include "server/journal/entry.h"
#include "tests/server/ingest/message_fuzz.h"

namespace plumbline::server {

class EntryMaker {
 public:
  explicit EntryMaker(unsigned seed) : random_(seed) {}

  bool Chance(unsigned in) { return random_() % in == 0; }

  double Value() {
    switch (random_() % 12) {
      case 0:  // a NaN with a payload, quiet or not
        return std::bit_cast<double>(0x7FF0000000000000u | (uint64_t{random_()} << 8 | 1));
      case 1:
        return -0.0;
      case 2:
        return Chance(2) ? std::numeric_limits<double>::infinity()
                         : -std::numeric_limits<double>::infinity();
      case 3:
        return std::numeric_limits<double>::denorm_min() * static_cast<double>(random_() % 5);
      case 4:
        return std::bit_cast<double>(uint64_t{random_()} << 32 | random_());
      case 5:
        return static_cast<double>(random_() % 1000) / 100;
      default:
        return std::normal_distribution<float>(2, 0.01F)(random_);
    }
  }

  v1::SeriesRows Rows() {
    v1::SeriesRows rows;
    rows.set_set(1 + random_() % 3);
    const int steps = Chance(3) ? 1 : static_cast<int>(1 + random_() % 40);
    const int columns = Chance(8) ? 200 : static_cast<int>(1 + random_() % 20);
    const bool constant = Chance(10), plain = Chance(2);
    for (int i = 0; i < steps; ++i) {
      rows.add_step(step_ + i);
      if (i == 0 || !one_source_) rows.add_source(random_() % 8);
      for (int c = 0; c < columns; ++c) {
        rows.add_value(constant ? 1.5 : plain ? 0.1F * static_cast<float>(i + c) : Value());
      }
    }
    one_source_ = Chance(2);
    if (Chance(3)) rows.mutable_absent()->assign(1 + random_() % 9, static_cast<char>(random_()));
    // Counts that do not match: no trainer sends them, but damaged data may have them.
    if (Chance(20)) rows.add_value(Value());
    if (Chance(20)) rows.clear_step();
    if (Chance(20)) rows.clear_value();
    if (Chance(20)) rows.clear_source();
    return rows;
  }

  v1::Batch Batch() {
    v1::Batch batch;
    if (Chance(6)) test::FillByChance(&batch, random_);
    batch.set_stream_id(stream_);
    batch.set_sequence(1 + random_() % 1000);
    for (uint32_t rank = 0, n = random_() % 4; rank < n; ++rank) {
      v1::Source& source = *batch.add_sources();
      source.set_run(Chance(2) ? "one" : "two");
      source.set_attempt(random_() % 3);
      source.set_rank(rank);
    }
    for (uint32_t n = random_() % 4; n > 0; --n) *batch.add_series() = Rows();
    if (Chance(3)) batch.add_progress()->set_complete_through(step_);
    if (Chance(5)) batch.add_evidence()->mutable_site()->set_op(std::string(random_() % 900, 'o'));
    step_ += Chance(4) ? -1 : 3;  // late ones, too
    return batch;
  }

  // Returns wire bytes of a batch, or invalid ones.
  std::string Body() {
    stream_ = 1 + random_() % 5;
    std::string wire = Batch().SerializeAsString();
    if (Chance(10)) AddOddFields(&wire);
    if (Chance(12)) wire = test::DamageBytes(std::move(wire), random_);
    return wire;
  }

  // Returns a complete payload; numbers count from 1.
  std::pair<FrameType, std::string> Entry() {
    FrameType type = FrameType::kJournalBatch;
    std::string body = Body();
    if (Chance(10)) {
      type = FrameType::kJournalSkip;
      v1::JournalSkip skip;
      skip.set_first(3);
      body = skip.SerializeAsString();
    } else if (Chance(10)) {
      type = FrameType::kJournalEvent;
      v1::JournalEvent event;
      test::FillByChance(&event, random_);
      event.set_after(number_);
      body = event.SerializeAsString();
    }
    const EntryPrefix prefix{++number_, 1700000000000000000 + static_cast<int64_t>(random_()),
                             stream_, number_ / 5};
    const auto head = prefix.Encode();
    return {type, std::string(head.data(), head.size()) + body};
  }

  uint64_t number() const { return number_; }
  std::mt19937& random() { return random_; }

 private:
  // Adds content that is legal on the wire but that no writer makes: values one by one and in
  // pieces, lengths in more bytes than needed, fields of a newer version.
  void AddOddFields(std::string* wire) {
    const double value = Value();
    std::string bytes(8, '\0');
    std::memcpy(bytes.data(), &value, 8);
    const std::string one = "\x21" + bytes, packed = "\x22\x08" + bytes,
                      long_length("\x22\x88\x00", 3);
    const std::string rows = one + packed + "\x1a\x01\x02" + long_length + bytes + packed;
    wire->push_back('\x4a');
    wire->push_back(static_cast<char>(rows.size()));
    wire->append(rows);
    wire->append("\xfa\x07\x03new", 6);
  }

  std::mt19937 random_;
  uint64_t number_ = 0;
  uint64_t stream_ = 1;
  int64_t step_ = 1;
  bool one_source_ = false;
};

}  // namespace plumbline::server
