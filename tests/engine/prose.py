"""Texts of our own on which models are compared with themselves."""

LIGHTHOUSE = """\
A lighthouse keeper wrote every evening what the day had brought: the wind, the ships, the birds \
that struck the glass. On 3 May 1921 he counted 41 sails. Nobody read the books until a teacher \
found them in a cellar, 60 years on, and gave each pupil one month to copy out. They learned that \
storms come from the west, that whales pass twice a year, and that the keeper had a dog called \
Bruno. One girl asked why he never wrote about himself. Perhaps, said the teacher, he did.

def tide(hour): return 2.1 * sin(hour / 12.4 * 2 * pi)  # metres above the mean

The class put the numbers into a table: days in the rows, wind and rain in the columns. Then they \
drew a line for each month, in blue for calm and red for rough weather. What surprised them most \
was how little had changed. "We could be reading about last week," said one of them.
"""
BRIDGE = """\
The bridge had been closed since spring, so the bus took the long way round: past the mill, past \
the two farms, and along the canal, where 14 boats lay side by side. "It adds 20 minutes," said \
the driver, "and nobody complains any more." Each stop had a name older than the road. At the \
third a woman with a cello got in, paid for two, and put the cello by the window.
"""
MARKET = """\
On Saturdays the square fills up before six. The cheese comes first, because its stalls need the \
shade of the church; then the flowers, then whoever sells what nobody can name. Prices are written \
in chalk and rubbed out as the morning goes: plums at 3.20 are 2.80 by ten, and by noon you may \
carry away the box. My aunt never bought anything before eleven. She walked round twice, asked \
each farmer after his knees, and remembered who had lied about the rain. "You pay for the second \
look," she used to say. The town has counted the stalls since 1874; there were 212 in the best \
year and 19 in the worst, when the river stood in the streets. The clerk who keeps the list is \
paid in apples. He has asked for a rise three times, and was given pears. If you want to know what \
a country eats, he says, do not read its laws: stand here with a pencil, count what is left over, \
and ask who takes it home. Most of it goes to the school kitchen, some of it to the pigs at the \
mill, and a crate or two to a man who says that he paints it. Nobody has ever seen a picture.
"""
