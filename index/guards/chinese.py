"""Chinese words that a guard knows, each read as the English word that says the same to it.

So every guard has one table for both languages. Chinese is written without spaces: where the
longest of these words stands, it is one word; every other character is a word by itself. What
stands for itself is here to keep a shorter word from being seen in it (`特别` denies nothing).
"""

import re

_MEANINGS = """
cancel = 取消
not = 不 没 没有 别 无 未 非 勿
why = 为什么 为何 为啥 怎么会
how = 怎么 怎样 怎么样 如何 咋 怎么办 怎么做 咋办
when = 什么时候 何时 啥时候 几时
where = 哪里 哪儿 在哪 何处 什么地方
who = 谁 什么人
which = 哪个 哪些 哪种 哪一个
what = 什么 啥 何
how many = 多少 几个 几次
how long = 多久 多长时间 多长
how old = 多大年纪 几岁 多少岁
how far = 多远
how much price = 多少钱 什么价
i = 我
you = 你 您
he = 他
she = 她
we = 我们 咱们 咱
they = 他们 她们 它们
you all = 你们
can = 可以 能 能够 能不能 可不可以 可否 能否
should = 应该 应当 要不要 该不该
must = 必须 需要 一定要 得要
may = 可能 也许 允许
is = 是 是不是 是否
have = 有 有没有
will = 将会 将要 会不会
used to = 曾经 曾
already = 已经
still = 仍然 仍 依然
yet not = 还没 还没有 尚未
before = 之前 以前
after = 之后 以后
since = 自从
during = 期间 当中
today = 今天 今日 今晚
tomorrow = 明天 明日
yesterday = 昨天 昨日
after tomorrow = 后天
before yesterday = 前天
this week = 本周 这周 这星期
next week = 下周 下星期
last week = 上周 上星期
this month = 本月 这个月
next month = 下个月 下月
last month = 上个月 上月
this year = 今年
next year = 明年
last year = 去年
weekend = 周末
monday = 星期一 周一 礼拜一
tuesday = 星期二 周二 礼拜二
wednesday = 星期三 周三 礼拜三
thursday = 星期四 周四 礼拜四
friday = 星期五 周五 礼拜五
saturday = 星期六 周六 礼拜六
sunday = 星期天 星期日 周日 礼拜天
summer = 夏天 夏季
winter = 冬天 冬季
autumn = 秋天 秋季
morning = 早上 上午 早晨
afternoon = 下午
evening = 傍晚
night = 晚上 夜里
bc = 公元前
or = 或者 或 还是 要么
and = 和 与 以及
only = 只 只有 仅 仅仅
if = 如果 要是 假如
unless = 除非
without = 没带
except = 除了
all = 所有 全部
some = 一些 有些 部分
most = 最多 大多数
least = 最少 至少
open = 打开 开启
close = 关闭 关掉 关上
increase = 增加 提高 提升
decrease = 减少 降低
start = 开始
end = 结束
buy = 买 购买
sell = 卖 出售
father = 父亲 爸爸 爸
mother = 母亲 妈妈 妈
husband = 丈夫 老公
wife = 妻子 老婆
son = 儿子
daughter = 女儿
male = 男 男性 男人
female = 女 女性 女人
largest = 最大
smallest = 最小
longest = 最长
shortest = 最短
fastest = 最快
slowest = 最慢
cheapest = 最便宜
dearest = 最贵
best = 最好
worst = 最差 最坏
earliest = 最早
latest = 最晚
newest = 最新
oldest = 最旧 最老
farthest = 最远
nearest = 最近
heaviest = 最重
lightest = 最轻
hottest = 最热
coldest = 最冷
deepest = 最深
shallowest = 最浅
strongest = 最强
weakest = 最弱
hardest = 最难
easiest = 最简单 最容易
highest = 最高
lowest = 最低
above = 以上
below = 以下
left = 左 左边
right = 右 右边
cheap = 便宜
expensive = 昂贵 贵
advantage = 优点 好处
disadvantage = 缺点 坏处
upload = 上传
download = 下载
install = 安装
uninstall = 卸载
login = 登录 登陆
logout = 退出登录
add = 添加
remove = 删除 移除
import = 进口 导入
export = 出口 导出
legal = 合法
illegal = 非法 违法
correct = 正确
wrong = 错误
success = 成功
failure = 失败
domestic = 国内
foreign = 国外
income = 收入
expense = 支出
fast = 快
slow = 慢
km = 公里 千米
miles = 英里
kg = 公斤 千克
cm = 厘米
mm = 毫米
inch = 英寸
feet = 英尺
ml = 毫升
dollars = 美元 美金
euro = 欧元
yuan = 人民币
gbp = 英镑
yen = 日元
percent = 百分之
hours = 小时
minutes = 分钟
seconds = 秒 秒钟
celsius = 摄氏度
fahrenheit = 华氏度
hello = 你好 您好
please = 请问 请 麻烦
do = 做 办 弄
"""
_SILENT = "的 了 吗 呢 吧 啊 呀 嘛 着 哦 么"
"""Particles. They are not always idle, but what they say is no other question."""
_THEMSELVES = """
特别 区别 分别 类别 性别 级别 个别 别人 别墅 别的 辨别 识别 不同 不错 不断 不仅
不但 不过 差不多 无线 无论 无聊 非常 非洲 未来 功能 智能 能力 能量 性能 能源 技能
和平 和谐 请假 申请 邀请 目的 了解 为了 除了 只是 一只 是非 没收 埋没 与否 快乐
快递 快餐 愉快 慢性 男朋友 女朋友 女士 男士 贵州 富贵 左右 有名 有效 有限 有趣 具有
拥有 所有权 还有 只要 将军 卖家 买家 买单 公安 办公 办法 办理 做法 作法 何必 任何
几乎 飞机 几何
"""


def _table() -> dict[str, tuple[str, ...]]:
    table: dict[str, tuple[str, ...]] = {word: (word,) for word in _THEMSELVES.split()}
    table |= dict.fromkeys(_SILENT.split(), ())
    for line in _MEANINGS.strip().splitlines():
        english, _, chinese = line.partition(" = ")
        table |= dict.fromkeys(chinese.split(), tuple(english.split()))
    return table


_TABLE = _table()
_CHARACTER = re.compile(r"[\u3400-\u9fff]")

WORD = r"(?=[\u3400-\u9fff])(?:{})".format(
    "|".join([*sorted(map(re.escape, _TABLE), key=len, reverse=True), r"[\u3400-\u9fff]"])
)
"""Pattern of one Chinese word."""


def read_as(word: str) -> tuple[str, ...]:
    """The words that a Chinese word is read as; none for a particle."""
    return _TABLE.get(word, (word,))


def has_chinese(text: str) -> bool:
    """Whether a text has Chinese characters."""
    return not text.isascii() and _CHARACTER.search(text) is not None
