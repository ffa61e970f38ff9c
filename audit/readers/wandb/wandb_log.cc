#include "audit/readers/wandb/wandb_log.h"

#include <libdeflate.h>

#include <algorithm>
#include <cstring>

namespace plumbline::audit {
namespace {

constexpr std::string_view kHead("\x3aW&B\xe1\xbe\x00", 7);  // the name, 0xBEE1, version 0
constexpr size_t kBlock = 32768;
constexpr size_t kChunkHead = 7;            // bytes of checksum, length and type
constexpr size_t kMostRecord = 256u << 20;  // larger records hold no history

}  // namespace

std::string_view WandbLog::Head() { return kHead; }

bool WandbLog::Recognise(std::string_view head) { return head.starts_with(kHead); }

void WandbLog::Damaged(uint64_t offset, std::string text) {
  report_->Add(offset, std::move(text));
  damaged_ = true;
}

bool WandbLog::ReadHead() {
  const std::string_view head = in_->Peek(head_.size());
  if (head.size() < head_.size()) return false;
  if (head != head_) {
    Damaged(0, "expected the head of " + std::string(what_) + ", found other bytes");
    return false;
  }
  in_->Skip(head_.size());
  began_ = true;
  return true;
}

bool WandbLog::NextChunk(Chunk* chunk) {
  while (true) {
    const size_t left = kBlock - in_->offset() % kBlock;
    // If the rest of the block is smaller than a chunk's head, it is padding.
    if (left < kChunkHead) {
      if (in_->Peek(left).size() < left) return false;
      in_->Skip(left);
      continue;
    }
    const std::string_view head = in_->Peek(kChunkHead);
    if (head.size() < kChunkHead) return false;
    uint32_t crc;
    uint16_t length;
    std::memcpy(&crc, head.data(), sizeof crc);
    std::memcpy(&length, head.data() + 4, sizeof length);
    const auto type = static_cast<uint8_t>(head[6]);
    // The zeros are preallocated space that was never written, as after a crash of the host.
    if (crc == 0 && length == 0 && type == 0) {
      const std::string_view rest = in_->Peek(left);
      if (rest.find_first_not_of('\0') != std::string_view::npos) {
        Damaged(in_->offset(), "expected a chunk of a record, found zeros");
        return false;
      }
      if (rest.size() < left) return false;
      in_->Skip(left);
      continue;
    }
    if (length > left - kChunkHead || type < 1 || type > 4) {
      Damaged(in_->offset(), "expected a chunk of a record, found one of type " +
                                 std::to_string(type) + " and " + std::to_string(length) +
                                 " bytes");
      return false;
    }
    const std::string_view whole = in_->Peek(kChunkHead + length);
    if (whole.size() < kChunkHead + length) return false;
    // Uses libdeflate's CRC, which uses carry-less multiplication. zlib's CRC took 7 % of an audit.
    if (libdeflate_crc32(0, whole.data() + 6, whole.size() - 6) != crc) {
      Damaged(in_->offset(), "expected a chunk that matches its checksum, found a mismatch");
      return false;
    }
    *chunk = {static_cast<Kind>(type), whole.substr(kChunkHead)};
    return true;
  }
}

bool WandbLog::Next(std::string_view* record) {
  if (damaged_ || (!began_ && !ReadHead())) return false;
  Chunk chunk;
  while (NextChunk(&chunk)) {
    const uint64_t at = in_->offset();
    const bool begins = chunk.kind == Kind::kFull || chunk.kind == Kind::kFirst;
    if (begins == within_) {
      Damaged(at, begins ? "expected the rest of a record, found the beginning of another"
                         : "expected the beginning of a record, found the rest of one");
      return false;
    }
    in_->Skip(kChunkHead + chunk.data.size());
    if (begins) record_at_ = at;
    if (chunk.kind == Kind::kFull) {
      *record = chunk.data;
      return true;
    }
    if (begins) record_.clear();
    within_ = chunk.kind != Kind::kLast;
    if (record_.size() <= kMostRecord) record_ += chunk.data;
    if (within_) continue;
    if (record_.size() > kMostRecord) {
      Damaged(record_at_, "expected records of at most " + std::to_string(kMostRecord >> 20) +
                              " MiB, found a larger one");
      return false;
    }
    *record = record_;
    return true;
  }
  return false;
}

void WandbLog::Close() {
  if (const auto& problem = in_->stream().problem())
    report_->Add(problem->offset, problem->text, problem->error);
  if (damaged_) return;
  const bool more = !in_->Peek(1).empty();
  if (within_ || more || !began_)
    report_->Add(in_->offset(), "expected a complete record, found the end of the file", false);
}

}  // namespace plumbline::audit
