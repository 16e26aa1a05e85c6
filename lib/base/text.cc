#include "base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace pd {
namespace {

constexpr char32_t kDamaged = 0xFFFFFFFF;

struct Character {
  char32_t code = kDamaged;
  size_t bytes = 1;
};

// The first character of `text`, which is not empty.
Character FirstOf(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  if (lead < 0x80) return {lead, 1};
  const size_t bytes = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < bytes) return {};
  char32_t code = lead & (0x7F >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    const auto next = static_cast<unsigned char>(text[i]);
    if ((next & 0xC0) != 0x80) return {};
    code = code << 6 | (next & 0x3F);
  }
  constexpr char32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xD800 && code <= 0xDFFF;
  if (code < kLeast[bytes] || code > 0x10FFFF || surrogate) return {};
  return {code, bytes};
}

struct Range {
  char32_t first, last;
};

template <size_t kCount>
bool IsIn(const Range (&ranges)[kCount], char32_t code) {
  return std::any_of(std::begin(ranges), std::end(ranges), [code](const Range& range) {
    return code >= range.first && code <= range.last;
  });
}

// Unicode's categories Cc, Zl and Zp, the bidirectional controls (UAX 9), and what has no shape.
constexpr Range kHidden[] = {{0, 0x1F},        {0x7F, 0x9F},      {0xAD, 0xAD},
                             {0x61C, 0x61C},   {0x180E, 0x180E},  {0x200B, 0x200F},
                             {0x2028, 0x202E}, {0x2060, 0x206F},  {0xFEFF, 0xFEFF},
                             {0xFFF9, 0xFFFB}, {0xE0000, 0xE007F}};

constexpr Range kCombining[] = {{0x300, 0x36F},   {0x483, 0x489},   {0x591, 0x5BD},
                                {0x1AB0, 0x1AFF}, {0x1DC0, 0x1DFF}, {0x20D0, 0x20FF},
                                {0xFE00, 0xFE0F}, {0xFE20, 0xFE2F}};

// The blocks that UAX 11 has as wide, roughly.
constexpr Range kWide[] = {{0x1100, 0x115F},   {0x2E80, 0x303E},  {0x3041, 0xA4CF},
                           {0xA960, 0xA97C},   {0xAC00, 0xD7A3},  {0xF900, 0xFAFF},
                           {0xFE30, 0xFE6F},   {0xFF00, 0xFF60},  {0xFFE0, 0xFFE6},
                           {0x1F300, 0x1FAFF}, {0x20000, 0x3FFFD}};

}  // namespace

size_t DisplayWidth(std::string_view text) {
  size_t width = 0;
  while (!text.empty()) {
    const auto [code, bytes] = FirstOf(text);
    if (!IsIn(kCombining, code)) width += IsIn(kWide, code) ? 2 : 1;
    text.remove_prefix(bytes);
  }
  return width;
}

std::string Printable(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const auto [code, bytes] = FirstOf(text);
    if (code == kDamaged) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[0]));
    } else if (IsIn(kHidden, code)) {
      out += fmt::format("\\u{:04x}", static_cast<uint32_t>(code));
    } else {
      out += text.substr(0, bytes);
    }
    text.remove_prefix(bytes);
  }
  return out;
}

std::string_view WithoutByteOrderMark(std::string_view text) {
  constexpr std::string_view kMark = "\xEF\xBB\xBF";
  return text.substr(0, kMark.size()) == kMark ? text.substr(kMark.size()) : text;
}

std::string Counted(int64_t count, std::string_view noun, std::string_view plural) {
  if (count == 1) return fmt::format("1 {}", noun);
  return plural.empty() ? fmt::format("{} {}s", count, noun) : fmt::format("{} {}", count, plural);
}

}  // namespace pd
