#include "rules/engine/checkpoint.h"

#include <cfloat>
#include <cstdint>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/crc32c.h"

namespace plumbline::rules {
namespace {

constexpr std::string_view kMagic = "PLMBSTAT";
constexpr size_t kPiece = 1 << 20;  // bytes
constexpr uint32_t kFormat = 2;     // 2: suppressions

// The format of long double depends on the processor, so a state with them is read only if it is
// equal.
std::string WithMachine(const std::string& maker) {
  return absl::StrCat("long double ", LDBL_MANT_DIG, " bits\n", maker);
}

absl::Status Refused(std::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat("checkpoint: ", absl::string_view(why.data(), why.size())));
}

// Returns the first line that differs: "expected 'window 64', found 'window 32'".
std::string Difference(const std::string& expected, const std::string& found) {
  const std::vector<std::string> a = absl::StrSplit(expected, '\n');
  const std::vector<std::string> b = absl::StrSplit(found, '\n');
  size_t i = 0;
  while (i + 1 < a.size() && i + 1 < b.size() && a[i] == b[i]) ++i;
  return absl::StrCat("was made with other rules or options: expected '", a[i], "', found '", b[i],
                      "'");
}

}  // namespace

std::string SealCheckpoint(const std::string& maker, const std::function<void(Archive&)>& state) {
  std::string bytes;
  SealCheckpoint(maker, state, [&bytes](std::string_view piece) { bytes.append(piece); });
  return bytes;
}

void SealCheckpoint(const std::string& maker, const std::function<void(Archive&)>& state,
                    const Archive::Sink& sink) {
  uint32_t checksum = 0;
  Archive archive(
      [&](std::string_view piece) {
        checksum = Crc32c(piece.data(), piece.size(), checksum);
        sink(piece);
      },
      kPiece);
  archive.Text(kMagic);
  archive.Version(kFormat);
  archive.Text(WithMachine(maker));
  state(archive);
  archive.Drain();
  sink({reinterpret_cast<const char*>(&checksum), sizeof checksum});
}

absl::Status OpenCheckpoint(std::string_view bytes, const std::string& maker,
                            const std::function<void(Archive&)>& state) {
  uint32_t checksum = 0;
  if (bytes.size() < sizeof(checksum)) return Refused("expected a checkpoint, found fewer bytes");
  const std::string_view content = bytes.substr(0, bytes.size() - sizeof(checksum));
  std::memcpy(&checksum, bytes.data() + content.size(), sizeof(checksum));
  Archive archive(content);
  if (archive.Text({}) != kMagic) return Refused("expected a checkpoint, found other bytes");
  archive.Version(kFormat, kFormat);
  if (!archive.ok()) return Refused(archive.error());
  if (checksum != Crc32c(content.data(), content.size()))
    return Refused("expected the checksum of its bytes, found another: it is damaged");
  const std::string found(archive.Text({}));
  const std::string expected = WithMachine(maker);
  if (archive.ok() && found != expected) return Refused(Difference(expected, found));
  if (archive.ok()) state(archive);
  archive.End();
  return archive.ok() ? absl::OkStatus() : Refused(archive.error());
}

}  // namespace plumbline::rules
